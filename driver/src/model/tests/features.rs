//! Set Features and Get Features: values, what can be done with them, and every refusal.

use super::super::ModelConfig;
use super::host::{Host, small};
use crate::spec::command::{FeatureIdentifier as Fid, NSID_ALL, Select, Sqe};
use crate::spec::status::StatusCode;

fn get(fid: Fid) -> Sqe {
    Sqe::get_features(fid, Select::CURRENT, 0)
}

/// Value at first, what is set, what is read then, and the capabilities: saveable 1, of namespaces 2, changeable 4.
const TABLE: [(Fid, u32, u32, u32, u32, u32); 8] = [
    (Fid::ARBITRATION, 0, 0, 0x0102_03FF, 0x0102_0307, 5),
    (Fid::INTERRUPT_COALESCING, 0, 0, 0xF_1234, 0x1234, 5),
    (Fid::WRITE_ATOMICITY_NORMAL, 0, 0, 3, 1, 4),
    (Fid::SANITIZE_CONFIG, 0, 0, 1, 1, 4),
    (Fid::VOLATILE_WRITE_CACHE, 0, 1, 0, 0, 4),
    (Fid::ERROR_RECOVERY, 1, 0, 0x1234, 0x1234, 6),
    (Fid::INTERRUPT_VECTOR_CONFIGURATION, 0, 0, 1 << 16, 1 << 16, 4),
    // Events that there are not are reserved bits.
    (Fid::ASYNCHRONOUS_EVENT_CONFIGURATION, 0, 0, 0xFFFF_FFFF, 0x33F, 4),
];

#[test]
fn values_at_first_afterwards_and_after_a_reset() {
    let mut host = Host::new(small());
    for (fid, nsid, first, set, then, capabilities) in TABLE {
        let mut value = |sel| host.admin(Sqe::get_features(fid, sel, nsid)).dw0;
        assert_eq!(value(Select::SUPPORTED_CAPABILITIES), capabilities, "{fid}");
        assert_eq!(
            (value(Select::CURRENT), value(Select::DEFAULT), value(Select::SAVED)),
            (first, first, first),
            "{fid}"
        );
        assert_eq!(host.code(Sqe::set_features(fid, nsid, set)), StatusCode::SUCCESS, "{fid}");
        let mut value = |sel| host.admin(Sqe::get_features(fid, sel, nsid)).dw0;
        assert_eq!(
            (value(Select::CURRENT), value(Select::DEFAULT), value(Select::SAVED)),
            (then, first, first),
            "{fid}"
        );
        host.disable();
        host.enable();
        assert_eq!(host.admin(Sqe::get_features(fid, Select::CURRENT, nsid)).dw0, first, "{fid}");
    }
    let saved = host.admin(Sqe::get_features(Fid::NUMBER_OF_QUEUES, Select::SAVED, 0)).dw0;
    assert_eq!(saved, 0x0003_0003);
}

#[test]
fn what_is_saved_is_there_after_a_reset() {
    let mut host = Host::new(small());
    for (fid, nsid, _, set, then, capabilities) in TABLE {
        let code =
            if capabilities & 1 != 0 { StatusCode::SUCCESS } else { StatusCode::FEATURE_IDENTIFIER_NOT_SAVEABLE };
        assert_eq!(host.code(Sqe::set_features(fid, nsid, set).with_sv(true)), code, "{fid}");
        host.disable();
        host.enable();
        if code == StatusCode::SUCCESS {
            for sel in [Select::CURRENT, Select::SAVED] {
                assert_eq!(host.admin(Sqe::get_features(fid, sel, nsid)).dw0, then, "{fid}");
            }
        }
    }
}

#[test]
fn refusals() {
    let mut host = Host::new(ModelConfig { nn: 3, ..small() });
    let set = Sqe::set_features;
    let invalid = StatusCode::INVALID_FIELD_IN_COMMAND;
    let no_namespace = StatusCode::INVALID_NAMESPACE_OR_FORMAT;
    host.expect([
        (set(Fid::from_raw(0), 0, 0), invalid),
        (set(Fid::LBA_RANGE_TYPE, 1, 0), invalid),
        (set(Fid::HOST_MEMORY_BUFFER, 0, 0), invalid),
        (set(Fid::KEEP_ALIVE_TIMER, 0, 0), invalid),
        (get(Fid::LBA_RANGE_TYPE), invalid),
        (get(Fid::ARBITRATION).with_sel(Select::from_raw(4)), invalid),
        (set(Fid::POWER_MANAGEMENT, 0, 0), StatusCode::FEATURE_NOT_CHANGEABLE),
        (get(Fid::POWER_MANAGEMENT), StatusCode::SUCCESS),
        (set(Fid::ARBITRATION, 1, 0), StatusCode::FEATURE_NOT_NAMESPACE_SPECIFIC),
        (set(Fid::VOLATILE_WRITE_CACHE, 2, 0), StatusCode::FEATURE_NOT_NAMESPACE_SPECIFIC),
        (set(Fid::ARBITRATION, 4, 0), no_namespace),
        (set(Fid::ARBITRATION, NSID_ALL, 0), StatusCode::SUCCESS),
        (set(Fid::ERROR_RECOVERY, 0, 0), no_namespace),
        (set(Fid::ERROR_RECOVERY, 4, 0), no_namespace),
        (set(Fid::ERROR_RECOVERY, 2, 0), invalid),
        (set(Fid::ERROR_RECOVERY, 1, 1 << 16), invalid),
        (set(Fid::ERROR_RECOVERY, NSID_ALL, 7), StatusCode::SUCCESS),
        (get(Fid::ERROR_RECOVERY), no_namespace),
        (Sqe::get_features(Fid::ERROR_RECOVERY, Select::CURRENT, NSID_ALL), no_namespace),
        (Sqe::get_features(Fid::ERROR_RECOVERY, Select::CURRENT, 2), invalid),
        (set(Fid::INTERRUPT_VECTOR_CONFIGURATION, 0, 4), StatusCode::SUCCESS),
        (set(Fid::INTERRUPT_VECTOR_CONFIGURATION, 0, 5), invalid),
    ]);
    assert_eq!(host.admin(Sqe::get_features(Fid::ERROR_RECOVERY, Select::CURRENT, 1)).dw0, 7);
    let mut host = Host::new(ModelConfig { volatile_write_cache: false, ..small() });
    host.expect([(get(Fid::VOLATILE_WRITE_CACHE), invalid), (set(Fid::VOLATILE_WRITE_CACHE, 0, 1), invalid)]);
}

#[test]
fn a_host_identifier_of_eight_or_sixteen_bytes() {
    let mut host = Host::new(small());
    let set = |exhid| Sqe::set_features(Fid::HOST_IDENTIFIER, 0, 0).with_exhid(exhid);
    let get = |exhid| get(Fid::HOST_IDENTIFIER).with_exhid(exhid);
    assert_eq!(host.fetch::<[u8; 16]>(get(true)), Ok([0; 16]));
    let id: [u8; 16] = std::array::from_fn(|at| at as u8 + 1);
    assert_eq!(host.send(set(true), &id), StatusCode::SUCCESS);
    assert_eq!(host.fetch::<[u8; 16]>(get(true)), Ok(id));
    let half = host.fetch::<[u8; 16]>(get(false)).unwrap();
    assert_eq!((&half[..8], &half[8..]), (&id[..8], &[0xAA; 8][..]), "eight bytes and not one more");
    assert_eq!(host.send(set(false), &[9; 8]), StatusCode::SUCCESS);
    assert_eq!(host.fetch::<[u8; 16]>(get(true)).unwrap()[8..], [0; 8]);
    assert_eq!(host.fetch::<[u8; 16]>(get(true).with_sel(Select::DEFAULT)), Ok([0; 16]));
    host.disable();
    host.enable();
    assert_eq!(host.fetch::<[u8; 16]>(get(true)), Ok([0; 16]), "a reset makes the host nobody");
    assert_eq!(host.code(set(true)), StatusCode::DATA_TRANSFER_ERROR, "PRP1 is zero");
}

#[test]
fn time_goes_on_from_where_it_was_set() {
    let mut host = Host::new(small());
    let now = |host: &mut Host| u64::from_le_bytes(host.fetch::<[u8; 8]>(get(Fid::TIMESTAMP)).unwrap());
    assert_eq!(now(&mut host) >> 48, 0, "nobody has set it");
    let set = 0x0123_4567_89AB_u64;
    assert_eq!(host.send(Sqe::set_features(Fid::TIMESTAMP, 0, 0), &set.to_le_bytes()), StatusCode::SUCCESS);
    let first = now(&mut host);
    assert_eq!(first >> 48, 2, "its origin is the host");
    assert!(first & 0xFFFF_FFFF_FFFF >= set);
    assert!(now(&mut host) >= first);
    assert_eq!(host.fetch::<[u8; 8]>(get(Fid::TIMESTAMP).with_sel(Select::DEFAULT)), Ok([0; 8]));
}
