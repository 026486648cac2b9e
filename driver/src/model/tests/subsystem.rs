//! Two controllers, two hosts, one set of namespaces.

use super::super::{CacheConfig, Drive, ModelConfig, Subsystem, Survivors};
use super::host::{Host, count, small};
use crate::bus::Function;
use crate::spec::command::{Cns, FeatureIdentifier, LogPageIdentifier, NvmOpcode, Sqe};
use crate::spec::events::{AsynchronousEvent, AsynchronousEventConfiguration};
use crate::spec::identify::{Cmic, IdentifyController, IdentifyNamespace, Nmic};
use crate::spec::log::ChangedNamespaceList;
use crate::spec::registers::{NSSR_RESET, offset};
use crate::spec::status::StatusCode;

pub(super) fn two(config: ModelConfig) -> [Host; 2] {
    let mut subsystem = Subsystem::new(config).unwrap();
    [(); 2].map(|()| Host::with_controller_of(&mut subsystem, Drive::Stepped))
}

#[test]
fn each_controller_is_itself_and_the_namespaces_are_the_same() {
    let mut hosts = two(small());
    let mut nguids = Vec::new();
    for (host, cntlid) in hosts.iter_mut().zip([1, 2]) {
        let controller: IdentifyController = host.fetch(Sqe::identify(Cns::CONTROLLER, 0)).unwrap();
        assert_eq!((controller.cntlid, controller.cmic), (cntlid, Cmic::MULTIPLE_CONTROLLERS));
        let namespace: IdentifyNamespace = host.fetch(Sqe::identify(Cns::NAMESPACE, 1)).unwrap();
        assert_eq!(namespace.nmic, Nmic::SHARED);
        nguids.push((controller.subnqn, namespace.nguid));
    }
    assert_eq!(nguids[0], nguids[1]);
    assert_eq!(hosts.each_ref().map(|host| host.function.name().to_owned()), ["model/1", "model/2"]);
    let mut alone = Host::new(small());
    let controller: IdentifyController = alone.fetch(Sqe::identify(Cns::CONTROLLER, 0)).unwrap();
    assert_eq!((controller.cntlid, controller.cmic), (1, Cmic::empty()));
}

#[test]
fn what_one_writes_the_other_reads() {
    let mut hosts = two(small());
    let [mut first, mut second] = hosts.each_mut().map(|host| host.io_pair(1, 8));
    assert_eq!(hosts[0].fill_blocks(&mut first, 1, 0x11), StatusCode::SUCCESS);
    assert_eq!(hosts[1].blocks(&mut second, 1), Ok(vec![0x11; 1024]));
    assert_eq!(hosts[1].fill_blocks(&mut second, 1, 0x22), StatusCode::SUCCESS);
    assert_eq!(hosts[0].blocks(&mut first, 1), Ok(vec![0x22; 1024]));
    // The reset of one is nothing to the other, and neither is its end.
    hosts[0].disable();
    assert_eq!(hosts[1].blocks(&mut second, 1), Ok(vec![0x22; 1024]));
    let [first, second_host] = hosts;
    drop(first);
    assert_eq!(second_host.blocks(&mut second, 1), Ok(vec![0x22; 1024]));
    assert_eq!(second_host.model.violations(), []);
}

#[test]
fn a_subsystem_reset_resets_both() {
    let mut hosts = two(ModelConfig { nssrs: true, ..small() });
    hosts[1].function.write_u32(offset::NSSR, NSSR_RESET);
    for host in &mut hosts {
        assert!(host.csts().nssro() && !host.csts().rdy());
        assert_eq!(host.function.read_u64(offset::ASQ), 0);
    }
    // Nor does anything else that is written there.
    hosts[0].function.write_u32(offset::CSTS, 1 << 4);
    hosts[1].function.write_u32(offset::NSSR, NSSR_RESET - 1);
    assert!(!hosts[0].csts().nssro() && hosts[1].csts().nssro());
}

#[test]
fn both_hear_of_namespaces_that_come_and_go() {
    let mut hosts = two(ModelConfig { nn: 4, ..small() });
    for host in &mut hosts {
        let wanted = AsynchronousEventConfiguration::default().with_attached_namespace_attribute(true);
        let set = Sqe::set_features(FeatureIdentifier::ASYNCHRONOUS_EVENT_CONFIGURATION, 0, wanted.bits());
        assert_eq!(host.code(set), StatusCode::SUCCESS);
        host.request_events(1);
    }
    hosts[0].model.namespaces().add(3, 1 << 20, 512).unwrap();
    assert_eq!(hosts[1].model.namespaces().list(), [1, 3]);
    for host in &mut hosts {
        assert_eq!(host.events(), [AsynchronousEvent::ATTACHED_NAMESPACE_ATTRIBUTE_CHANGED]);
        let list: ChangedNamespaceList = host.log(LogPageIdentifier::CHANGED_ATTACHED_NAMESPACE_LIST);
        assert!(list == ChangedNamespaceList::from_nsids([3]));
        let mut pair = host.io_pair(1, 4);
        assert_eq!(host.blocks(&mut pair, 3), Ok(vec![0; 1024]));
    }
    assert!(hosts[1].model.namespaces().add(3, 1 << 20, 512).is_err());
}

#[test]
fn the_power_goes_for_both() {
    let config = ModelConfig { cache_simulation: Some(CacheConfig { blocks: 64, write_back: None }), ..small() };
    let mut hosts = two(config);
    let [mut first, mut second] = hosts.each_mut().map(|host| host.io_pair(1, 8));
    assert_eq!(hosts[0].fill_blocks(&mut first, 1, 0x11), StatusCode::SUCCESS);
    assert_eq!(hosts[0].io_code(&mut first, Sqe::nvm(NvmOpcode::FLUSH, 1)), StatusCode::SUCCESS);
    assert_eq!(hosts[1].fill_blocks(&mut second, 1, 0x22), StatusCode::SUCCESS);
    let loss = hosts[0].model.power_cut(Survivors::Nothing).unwrap();
    assert_eq!((loss.lost, loss.survived), (2, 0));
    assert!(hosts.iter().all(|host| !host.csts().rdy()));
    let host = &mut hosts[1];
    host.function.enable_bus_mastering().unwrap();
    host.set_up();
    host.enable();
    let mut second = host.io_pair(1, 8);
    assert_eq!(host.blocks(&mut second, 1), Ok(vec![0x11; 1024]));
}

/// Each of two threads counts up in a block of its own and reads the other's, which never goes back.
#[test]
fn two_threads_share_without_tearing() {
    let mut subsystem = Subsystem::new(small()).unwrap();
    let hosts = [(); 2].map(|()| Host::with_controller_of(&mut subsystem, Drive::Threaded));
    std::thread::scope(|scope| {
        for (own, mut host) in (0u64..).zip(hosts) {
            scope.spawn(move || {
                let mut pair = host.io_pair(1, 8);
                let data = host.memory(4096);
                let mut seen = 0;
                for number in 1..=500u64 {
                    (0..64).for_each(|word| data.view().write(8 * word, &number.to_le_bytes()));
                    let write = Sqe::write(1, own, count(1)).with_prp1(data.iova().get());
                    assert_eq!(host.io_code(&mut pair, write), StatusCode::SUCCESS);
                    let read = Sqe::read(1, 1 - own, count(1)).with_prp1(data.iova().get());
                    assert_eq!(host.io_code(&mut pair, read), StatusCode::SUCCESS);
                    let mut words = [0; 64];
                    data.view().read_words(0, &mut words);
                    assert!(words[0] >= seen && words.iter().all(|word| *word == words[0]), "{seen}: {words:?}");
                    seen = words[0];
                }
                assert_eq!(host.model.violations(), []);
            });
        }
    });
}
