use proptest::prelude::*;
use tentpeg_driver::dma::DmaSpace;
use tentpeg_driver::model::SoftwareIommu;

use super::*;
use crate::memory::own::Own;
use std::sync::Arc;

fn memory(space: &Arc<DmaSpace>, own: &Own, at: usize, len: usize, staging: bool) -> Memory {
    let options = RegisterOptions { staging, ..RegisterOptions::default() };
    Memory::of_caller(space, own.part(at, len), options).unwrap()
}

#[test]
fn what_is_unregistered_is_served_still_and_cannot_be_named() {
    let (own, space) = (Own::new(0x8000), SoftwareIommu::new().space());
    let [one, two] = [0x10, 0x3000].map(|at| memory(&space, &own, at, 0x1000, at == 0x10));
    let at = |offset| own.address() + offset;
    let both = Registered::default().with(two.clone()).unwrap().with(one.clone()).unwrap();
    assert!(both.find(at(0x10), 0x1000).is_some_and(|(found, offset)| found.is(&one) && offset == 0));
    assert!(both.find(at(0x3fff), 1).is_some_and(|(found, offset)| found.is(&two) && offset == 0xfff));
    for (address, len) in [(0xf, 1), (0xf, 2), (0x1010, 1), (0x10, 0x1001), (0x3fff, 2), (0x10, u64::MAX)] {
        assert!(both.find(at(address), len).is_none(), "{len} bytes at {address:#x}");
    }
    let closing = both.closing(&one).unwrap();
    assert!(closing.find_open(at(0x10), 1).is_none() && closing.find(at(0x10), 1).is_some());
    assert!(closing.nameable.resolve(at(0x10), 1).is_err() && closing.nameable.staged(at(0x10), 1).is_none());
    assert!(closing.nameable.resolve(at(0x3000), 1).is_ok());
    assert!(closing.closing(&one).is_none() && closing.unregister_once(&one), "it is none that can be named");
    assert!(matches!(closing.check_free(at(0x100f), 1), Err(MemoryError::Overlaps { .. })), "it is in use still");
    let opened = closing.opened(&one);
    assert_eq!(opened.nameable.staged(at(0x10), 0x1000), Some(Ok(Access::all())));
    let gone = closing.without(&one);
    assert!(gone.find(at(0x10), 1).is_none() && gone.find(at(0x3000), 1).is_some());
    assert_eq!((gone.regions().len(), both.regions().len()), (1, 2));
}

#[test]
fn what_may_be_staged_is_found_by_its_bytes() {
    let entry = |address, len| StagedEntry { address, len, access: Access::DEVICE_READS };
    let nameable = Nameable::new(RegionTable::default(), vec![entry(0x5001, 7), entry(0x1000, 0x800)]);
    assert_eq!(nameable.staged(0x1000, 0x800), Some(Ok(Access::DEVICE_READS)));
    assert_eq!(nameable.staged(0x5007, 1), Some(Ok(Access::DEVICE_READS)));
    for address in [0, 0xfff, 0x1800, 0x5000, 0x5008, u64::MAX] {
        assert_eq!(nameable.staged(address, 1), None, "{address:#x}");
    }
    let past_end = |address, len, end| Some(Err(ResolveError::PastEnd { address, len, end }));
    assert_eq!(nameable.staged(0x17ff, 2), past_end(0x17ff, 2, 0x1800));
    assert_eq!(nameable.staged(0x5001, u64::MAX), past_end(0x5001, u64::MAX, 0x5008));
    assert_eq!(nameable.staged(0x1000, 0), Some(Err(ResolveError::NoRange { address: 0x1000, len: 0 })));
}

#[test]
fn the_same_memory_is_registered_again_and_nothing_else_is() {
    let (own, space) = (Own::new(0x8000), SoftwareIommu::new().space());
    let one = memory(&space, &own, 0x1000, 0x2000, false);
    let registered = Registered::default().with(one.clone()).unwrap();
    let (address, plain) = (one.address(), RegisterOptions::default());
    assert!(
        registered.again(address, 0x1fff, plain, false).is_none()
            && registered.again(address + 1, 0x2000, plain, false).is_none()
    );
    assert!(registered.again(address, 0x2000, plain, true).is_none(), "it is no memory of a GPU");
    assert!(registered.again(address, 0x2000, plain, false).unwrap().unwrap().is(&one));
    for other in [RegisterOptions { staging: true, ..plain }, RegisterOptions { access: Access::DEVICE_READS, ..plain }]
    {
        let refused = registered.again(address, 0x2000, other, false).unwrap();
        assert!(matches!(refused, Err(MemoryError::RegisteredOtherwise { .. })), "{refused:?}");
    }
    assert!(registered.unregister_once(&one), "once of twice");
    assert!(!registered.unregister_once(&one), "the last one is to be taken out of the set");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// By a list of who has each byte.
    #[test]
    fn no_two_share_a_byte(
        ranges in prop::collection::vec((0usize..0x300, 1usize..0x100, any::<bool>()), 1..24), looks in prop::collection::vec((0u64..0x420, 1u64..0x80), 40)
    ) {
        let (own, space) = (Own::new(0x1000), SoftwareIommu::new().space());
        let mut registered = Registered::default();
        let mut owners = [None; 0x1000];
        let mut kept = Vec::new();
        for (number, (at, len, gives_back)) in ranges.into_iter().enumerate() {
            let new = memory(&space, &own, at, len, false);
            let free = owners[at..at + len].iter().all(Option::is_none);
            match registered.with(new.clone()) {
                Ok(with_it) => {
                    prop_assert!(free);
                    registered = with_it;
                    owners[at..at + len].fill(Some(number));
                    kept.push((number, new));
                }
                Err(error) => {
                    let overlaps = matches!(error, MemoryError::Overlaps { .. });
                    prop_assert!(!free && overlaps);
                }
            }
            if gives_back {
                let (former, old) = kept.swap_remove(number % kept.len());
                registered = registered.closing(&old).unwrap().without(&old);
                owners.iter_mut().filter(|owner| **owner == Some(former)).for_each(|owner| *owner = None);
                if kept.is_empty() {
                    break;
                }
            }
        }
        for (at, len) in looks {
            let bytes = &owners[at as usize..(at + len) as usize];
            let one = bytes[0].is_some() && bytes.iter().all(|owner| *owner == bytes[0]);
            let found = registered.find_open(own.address() + at, len);
            prop_assert_eq!(found.is_some(), one);
            prop_assert_eq!(registered.nameable.resolve(own.address() + at, len).is_ok(), one);
        }
    }
}
