use tentpeg_driver::queue::{ControllerLimits, Limits};
use tentpeg_driver::spec::ZeroesBased;
use tentpeg_driver::spec::identify::{IdentifyController, IdentifyNamespace, LbaFormat};
use tentpeg_driver::spec::registers::Cap;

use super::*;

fn limits() -> Limits {
    let cap = Cap::from_bits(0).with_mqes(ZeroesBased::<u16>::from_raw(127));
    let mut namespace = IdentifyNamespace { nsze: 1 << 20, ..IdentifyNamespace::default() };
    namespace.lbaf[0] = LbaFormat { ms: 0, lbads: 9, rp: 0 };
    ControllerLimits::identified(cap, 4096, &IdentifyController::default(), None)
        .unwrap()
        .namespace(&namespace)
        .unwrap()
}

#[test]
fn only_what_changes_blocks_in_a_volatile_cache_is_cared_for() {
    use Operation::{Deallocate, Flush, Read, StagedRead, StagedWrite, Write, Zeroes};
    let ground = |volatile| Ground { lane: 0, nsid: 1, limits: limits(), volatile };
    for durability in [Durability::None, Durability::Fua, Durability::Flush] {
        for operation in [Read, StagedRead, Flush] {
            assert_eq!(cares(operation, durability, &ground(true)), Flags::default(), "{operation:?}");
        }
        for operation in [Write, StagedWrite, Zeroes, Deallocate] {
            assert_eq!(cares(operation, durability, &ground(false)), Flags::default(), "there is no cache");
            let expected = match (durability, operation) {
                (Durability::None, _) => Flags::DIRTIES,
                (Durability::Fua, Deallocate) | (Durability::Flush, _) => Flags::WAITS,
                (Durability::Fua, _) => Flags::default(),
            };
            assert_eq!(cares(operation, durability, &ground(true)), expected, "{operation:?}, {durability:?}");
        }
    }
}
