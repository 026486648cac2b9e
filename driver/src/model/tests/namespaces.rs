//! Several namespaces, and such that come, go and change.

use super::super::{ModelConfig, NamespaceError};
use super::host::{Host, count, small};
use crate::spec::command::{Cns, Csi, FeatureIdentifier, LogPageIdentifier, NSID_ALL, Sqe};
use crate::spec::events::{AsynchronousEvent, AsynchronousEventConfiguration};
use crate::spec::identify::{ActiveNamespaceList, Descriptors, IDENTIFY_LENGTH, IdentifyNamespace};
use crate::spec::log::ChangedNamespaceList;
use crate::spec::status::StatusCode;

const CHANGED: LogPageIdentifier = LogPageIdentifier::CHANGED_ATTACHED_NAMESPACE_LIST;

fn several() -> Host {
    Host::new(ModelConfig { nn: 9, ..small() })
}

fn active(host: &mut Host) -> Vec<u32> {
    let list: ActiveNamespaceList = host.fetch(Sqe::identify(Cns::ACTIVE_NAMESPACE_LIST, 0)).unwrap();
    list.iter().collect()
}

fn identify(host: &mut Host, nsid: u32) -> IdentifyNamespace {
    host.fetch(Sqe::identify(Cns::NAMESPACE, nsid)).unwrap()
}

#[test]
fn each_namespace_has_blocks_and_a_name_of_its_own() {
    let mut host = several();
    host.model.namespaces().add(5, 1 << 20, 512).unwrap();
    host.model.namespaces().add(2, 2 << 20, 4096).unwrap();
    assert_eq!(host.model.namespaces().list(), [1, 2, 5]);
    assert_eq!(active(&mut host), [1, 2, 5]);
    let above: ActiveNamespaceList = host.fetch(Sqe::identify(Cns::ACTIVE_NAMESPACE_LIST, 2)).unwrap();
    assert_eq!(above.iter().collect::<Vec<_>>(), [5]);
    let (one, two, five) = (identify(&mut host, 1), identify(&mut host, 2), identify(&mut host, 5));
    assert_eq!((one.nsze, two.nsze, five.nsze), (32768, 512, 2048));
    assert_eq!(two.current_lba_format().unwrap().data_size(), Some(4096));
    let names = [one.nguid, two.nguid, five.nguid];
    assert!(names[0] != names[1] && names[1] != names[2] && names[0] != names[2]);

    let mut pair = host.io_pair(1, 8);
    assert_eq!(host.fill_blocks(&mut pair, 1, 1), StatusCode::SUCCESS);
    assert_eq!(host.fill_blocks(&mut pair, 5, 5), StatusCode::SUCCESS);
    // To and fro, so that none is found where the last one was.
    for _ in 0..3 {
        assert_eq!(host.blocks(&mut pair, 1), Ok(vec![1; 1024]));
        assert_eq!(host.blocks(&mut pair, 5), Ok(vec![5; 1024]));
    }
    let data = host.memory(4096);
    let at = |nsid, slba| Sqe::read(nsid, slba, count(1)).with_prp1(data.iova().get());
    assert_eq!(host.io_code(&mut pair, at(5, 2047)), StatusCode::SUCCESS);
    assert_eq!(host.io_code(&mut pair, at(5, 2048)), StatusCode::LBA_OUT_OF_RANGE);
    assert_eq!(host.io_code(&mut pair, at(3, 0)), StatusCode::INVALID_FIELD_IN_COMMAND, "valid and not active");
    assert_eq!(host.io_code(&mut pair, at(10, 0)), StatusCode::INVALID_NAMESPACE_OR_FORMAT);
    assert_eq!(host.io_code(&mut pair, at(0, 0)), StatusCode::INVALID_NAMESPACE_OR_FORMAT);
    assert_eq!(host.io_code(&mut pair, at(NSID_ALL, 0)), StatusCode::INVALID_NAMESPACE_OR_FORMAT);
    let before = host.model.counters();
    assert_eq!(host.io_code(&mut pair, Sqe::flush(NSID_ALL)), StatusCode::SUCCESS);
    let after = host.model.counters();
    assert_eq!((after.flushes - before.flushes, after.persists - before.persists), (1, 3), "one command, three stores");
    assert_eq!(host.model.violations(), []);
}

#[test]
fn what_identify_says_of_namespaces_that_are_not_there() {
    let mut host = several();
    host.model.namespaces().add(2, 1 << 20, 512).unwrap();
    let invalid = StatusCode::INVALID_FIELD_IN_COMMAND;
    let no_namespace = StatusCode::INVALID_NAMESPACE_OR_FORMAT;
    for cns in [Cns::NAMESPACE, Cns::ALLOCATED_NAMESPACE, Cns::IO_COMMAND_SET_NAMESPACE, Cns::INDEPENDENT_NAMESPACE] {
        let zeroes: [u8; IDENTIFY_LENGTH] = host.fetch(Sqe::identify(cns, 3)).unwrap();
        assert!(zeroes.iter().all(|byte| *byte == 0), "{cns}");
        assert!(host.fetch::<[u8; IDENTIFY_LENGTH]>(Sqe::identify(cns, 2)).is_ok(), "{cns}");
        for nsid in [0, 10, NSID_ALL] {
            assert_eq!(host.code(Sqe::identify(cns, nsid)), no_namespace, "{cns} of {nsid}");
        }
    }
    let descriptors = Sqe::identify(Cns::NAMESPACE_IDENTIFICATION_DESCRIPTOR_LIST, 2);
    let page: [u8; IDENTIFY_LENGTH] = host.fetch(descriptors).unwrap();
    assert_eq!(Descriptors::new(&page).count(), 4);
    host.expect([
        (Sqe::identify(Cns::NAMESPACE_IDENTIFICATION_DESCRIPTOR_LIST, 3), invalid),
        (Sqe::identify(Cns::NAMESPACE_IDENTIFICATION_DESCRIPTOR_LIST, 10), no_namespace),
        (Sqe::identify(Cns::IO_COMMAND_SET, 0).with_cntid(7), invalid),
        (Sqe::identify(Cns::ALLOCATED_NAMESPACE_LIST, NSID_ALL), no_namespace),
        (Sqe::identify(Cns::IO_COMMAND_SET_ACTIVE_NAMESPACE_LIST, 0).with_identify_csi(Csi::KEY_VALUE), invalid),
    ]);
    for cntid in [1, 0xFFFF] {
        let sets: [u64; 512] = host.fetch(Sqe::identify(Cns::IO_COMMAND_SET, 0).with_cntid(cntid)).unwrap();
        assert_eq!((sets[0], &sets[1..]), (1, &[0; 511][..]));
    }
    for cns in [Cns::ALLOCATED_NAMESPACE_LIST, Cns::IO_COMMAND_SET_ACTIVE_NAMESPACE_LIST] {
        let list: ActiveNamespaceList = host.fetch(Sqe::identify(cns, 0)).unwrap();
        assert_eq!(list.iter().collect::<Vec<_>>(), [1, 2]);
    }
}

#[test]
fn each_change_is_told_and_listed() {
    let mut host = several();
    let wanted = AsynchronousEventConfiguration::default().with_attached_namespace_attribute(true).bits();
    host.code(Sqe::set_features(FeatureIdentifier::ASYNCHRONOUS_EVENT_CONFIGURATION, 0, wanted));
    host.request_events(3);
    let changed = [AsynchronousEvent::ATTACHED_NAMESPACE_ATTRIBUTE_CHANGED];
    let list = |host: &mut Host| host.log::<ChangedNamespaceList>(CHANGED).iter().collect::<Vec<_>>();
    assert_eq!(list(&mut host), []);

    host.model.namespaces().add(4, 1 << 20, 512).unwrap();
    assert_eq!(host.events(), changed);
    host.model.namespaces().add(3, 1 << 20, 512).unwrap();
    assert_eq!(host.events(), [], "once, until the list is read");
    let retained: ChangedNamespaceList = host.fetch(super::answers::log(CHANGED, 4096).with_rae(true)).unwrap();
    assert_eq!(retained.iter().collect::<Vec<_>>(), [3, 4]);
    assert_eq!(list(&mut host), [3, 4]);
    assert_eq!(list(&mut host), [], "it has been read");
    assert_eq!(host.events(), []);

    host.model.namespaces().remove(4).unwrap();
    assert_eq!(host.events(), changed);
    assert_eq!((list(&mut host), active(&mut host)), (vec![4], vec![1, 3]));
    let mut pair = host.io_pair(1, 8);
    assert_eq!(host.blocks(&mut pair, 4), Err(StatusCode::INVALID_FIELD_IN_COMMAND));

    assert_eq!(host.fill_blocks(&mut pair, 1, 7), StatusCode::SUCCESS);
    host.model.namespaces().resize(1, 64 << 20).unwrap();
    assert_eq!(host.events(), changed);
    assert_eq!((list(&mut host), identify(&mut host, 1).nsze), (vec![1], 131_072));
    assert_eq!(host.blocks(&mut pair, 1), Ok(vec![7; 1024]), "what was there stays");
    let data = host.memory(4096);
    let last = Sqe::read(1, 131_071, count(1)).with_prp1(data.iova().get());
    assert_eq!(host.io_code(&mut pair, last), StatusCode::SUCCESS);
    host.model.namespaces().resize(1, 4096).unwrap();
    host.turns(1);
    assert_eq!(host.io_code(&mut pair, last), StatusCode::LBA_OUT_OF_RANGE);
    assert_eq!(host.blocks(&mut pair, 1), Ok(vec![7; 1024]));
    assert_eq!(host.model.violations(), []);
}

#[test]
fn more_changes_than_the_list_can_name() {
    let config = ModelConfig { nn: 2000, store: super::super::StoreConfig::Null, ..small() };
    let mut host = Host::new(config);
    for nsid in 2..=1030 {
        host.model.namespaces().add(nsid, 1 << 20, 512).unwrap();
    }
    host.turns(1);
    assert!(host.log::<ChangedNamespaceList>(CHANGED).overflowed());
    assert_eq!(active(&mut host).len(), 1024);
    let rest: ActiveNamespaceList = host.fetch(Sqe::identify(Cns::ACTIVE_NAMESPACE_LIST, 1024)).unwrap();
    assert_eq!(rest.iter().collect::<Vec<_>>(), [1025, 1026, 1027, 1028, 1029, 1030]);
}

#[test]
fn changes_that_cannot_be() {
    let host = several();
    let namespaces = host.model.namespaces();
    let message = |result: Result<(), NamespaceError>| result.unwrap_err().to_string();
    assert_eq!(
        message(namespaces.add(10, 4096, 512)),
        "a model has no namespace 10: NSIDs are 1 to 9 here (the setting nn)"
    );
    assert!(matches!(namespaces.add(0, 4096, 512), Err(NamespaceError::Nsid { .. })));
    assert_eq!(
        message(namespaces.add(1, 4096, 512)),
        "namespace 1 exists already: remove it first or take another NSID"
    );
    assert_eq!(
        message(namespaces.add(2, 4096, 513)),
        "a model has no blocks of 513 bytes: lba must be 512, 1024, 2048 or 4096"
    );
    assert!(matches!(namespaces.add(2, 0, 512), Err(NamespaceError::Model(_))));
    assert_eq!(message(namespaces.remove(2)), "there is no namespace 2: add it first");
    assert!(matches!(namespaces.resize(2, 4096), Err(NamespaceError::Absent { nsid: 2 })));
    assert!(message(namespaces.resize(1, 512)).contains("must be a multiple of 4096"));
    assert_eq!(namespaces.list(), [1]);
    namespaces.remove(1).unwrap();
    assert_eq!(namespaces.list(), []);
}

#[test]
fn a_namespace_that_goes_while_it_is_formatted() {
    let mut host = several();
    host.post(Sqe::format_nvm(1, 0).with_cid(40));
    host.model.namespaces().remove(1).unwrap();
    host.turns(20);
    let [end] = host.completions()[..] else { panic!() };
    assert_eq!((end.cid, end.status.status().code()), (40, StatusCode::INVALID_FIELD_IN_COMMAND));
}

#[test]
fn a_file_that_cannot_grow_is_an_internal_error() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let store = super::super::StoreConfig::File { path: file.path().to_owned(), writable: true };
    let mut host = Host::new(ModelConfig { size: 1 << 20, store, ..small() });
    host.request_events(1);
    host.model.namespaces().resize(1, 2 << 20).unwrap();
    assert_eq!(host.events(), [AsynchronousEvent::PERSISTENT_INTERNAL_ERROR]);
    assert_eq!(identify(&mut host, 1).nsze, 2048);
}
