//! Lists and structures, honest and not, and what is known to be wrong of them.

use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::*;
use crate::controller::puppet::{Answer, Puppet};
use crate::controller::quirks::{PciId, Quirk};
use crate::spec::command::{AdminOpcode, QueuePriority};
use crate::spec::identify::{DescriptorWriter, LbaFormat, Oncs};

fn identify(nn: u32) -> IdentifyController {
    IdentifyController { nn, vid: 0x1234, ver: Vs::new(2, 1, 0), ..IdentifyController::default() }
}

fn structure() -> IdentifyNamespace {
    let mut namespace = IdentifyNamespace { nsze: 100, eui64: [7; 8], ..IdentifyNamespace::default() };
    namespace.lbaf[0] = LbaFormat { ms: 0, lbads: 12, rp: 0 };
    namespace
}

/// A controller whose lists are what `list` says of the identifier they begin after.
fn lister(nn: u32, list: impl Fn(u32) -> Vec<u32> + Send + 'static) -> Puppet {
    Puppet::new(identify(nn), move |sqe, _| match (sqe.admin_opcode(), sqe.cns()) {
        (AdminOpcode::IDENTIFY, Cns::ACTIVE_NAMESPACE_LIST | Cns::ALLOCATED_NAMESPACE_LIST) => {
            Answer::page(&ActiveNamespaceList::from_nsids(list(sqe.nsid)))
        }
        (AdminOpcode::IDENTIFY, Cns::NAMESPACE) => {
            if sqe.nsid % 2 == 1 {
                Answer::page(&structure())
            } else {
                Answer::page(&IdentifyNamespace::default())
            }
        }
        _ => None,
    })
}

#[test]
fn lists_of_more_than_a_page() {
    let puppet = lister(u32::MAX - 1, |after| (after + 1..=1500).take(1024).collect());
    let config = ControllerConfig { max_namespaces: 1500, ..ControllerConfig::default() };
    let mut controller = puppet.enable(config).unwrap();
    assert_eq!(controller.active_namespaces().unwrap(), (1..=1500).collect::<Vec<_>>());
    assert_eq!(controller.allocated_namespaces().unwrap().len(), 1500);
    let namespaces = controller.namespaces().unwrap();
    assert_eq!(namespaces.len(), 750, "a page of zeroes is a namespace that is not there any more");
    assert!(controller.rescan(2).unwrap().is_none());
    assert_eq!(controller.rescan(3).unwrap().unwrap().limits.unwrap().nsze(), 100);
}

/// Field failure 13.
#[test]
fn lists_that_do_not_end() {
    // Ascending for ever: the number is limited.
    let puppet = lister(u32::MAX - 1, |after| (after + 1..).take(1024).collect());
    let error = puppet.controller().namespaces().unwrap_err();
    assert!(matches!(error, ControllerError::TooManyNamespaces { max: 1024 }), "{error}");
    // A list that cycles, one that repeats itself, one beyond NN.
    let error = lister(9, |_| vec![1, 2, 3, 1]).controller().active_namespaces().unwrap_err();
    assert!(matches!(error, ControllerError::NamespaceList { nsid: 1, after: 3 }), "{error}");
    let error = lister(5000, |_| (1..=1024).collect()).controller().active_namespaces().unwrap_err();
    assert!(matches!(error, ControllerError::NamespaceList { nsid: 1, after: 1024 }), "{error}");
    let error = lister(9, |_| vec![10]).controller().allocated_namespaces().unwrap_err();
    assert!(matches!(error, ControllerError::NamespaceList { nsid: 10, after: 0 }), "{error}");
}

#[test]
fn identities_from_descriptors_and_from_the_structure() {
    let pages = |bad: bool| {
        move |sqe: &Sqe, _: &[u8]| match (sqe.admin_opcode(), sqe.cns()) {
            (AdminOpcode::IDENTIFY, Cns::NAMESPACE) => Answer::page(&structure()),
            (AdminOpcode::IDENTIFY, Cns::NAMESPACE_IDENTIFICATION_DESCRIPTOR_LIST) => {
                let mut list = DescriptorWriter::new();
                list.push(NamespaceIdentifier::Uuid([3; 16])).unwrap();
                list.push(NamespaceIdentifier::Csi(Csi::NVM)).unwrap();
                let mut page = list.finish();
                page[1] = if bad { 15 } else { 16 };
                Answer::page(&*page)
            }
            _ => None,
        }
    };
    let mut controller = Puppet::new(identify(1), pages(false)).controller();
    let namespace = controller.rescan(1).unwrap().unwrap();
    let whole = NamespaceIdentity { eui64: Some([7; 8]), nguid: None, uuid: Some([3; 16]), csi: Some(Csi::NVM) };
    assert_eq!(controller.namespace_identity(&namespace).unwrap(), whole);

    let mut broken = Puppet::new(identify(1), pages(true)).controller();
    assert!(matches!(broken.namespace_identity(&namespace), Err(ControllerError::Descriptor(_))));

    let old = IdentifyController { ver: Vs::new(1, 2, 0), ..identify(1) };
    let mut old = Puppet::new(old, pages(true)).controller();
    let structure_only = NamespaceIdentity { eui64: Some([7; 8]), ..NamespaceIdentity::default() };
    assert_eq!(old.namespace_identity(&namespace).unwrap(), structure_only, "before 1.3 there is no list to ask for");
}

const PCI: PciId = PciId { vendor: 0x1234, device: 0x5678 };

fn enabled_with(flags: QuirkFlags, identify: IdentifyController) -> (Puppet, Result<Controller, ControllerError>) {
    let table = Box::leak(Box::new([Quirk {
        vendor: PCI.vendor,
        device: Some(PCI.device),
        model: "",
        firmware: "",
        flags,
        reason: "so the test has it",
    }]));
    let puppet = Puppet::new(identify, |sqe, _| match (sqe.admin_opcode(), sqe.cns()) {
        (AdminOpcode::IDENTIFY, Cns::NAMESPACE) => Answer::page(&structure()),
        _ => None,
    });
    let config = ControllerConfig { pci: Some(PCI), quirks: table, ..ControllerConfig::default() };
    let controller = puppet.enable(config);
    (puppet, controller)
}

#[test]
fn each_quirk_changes_what_is_done() {
    let plain = || IdentifyController { oncs: Oncs::WRITE_ZEROES, ..identify(3) };
    let (puppet, controller) = enabled_with(QuirkFlags::empty(), plain());
    assert_eq!(controller.unwrap().limits().max_queue_entries, 128);
    assert_eq!(puppet.admin_entries(), 32);

    let (_, controller) = enabled_with(QuirkFlags::ONE_COMMAND, plain());
    assert_eq!(controller.unwrap().limits().max_queue_entries, 2);
    let (_, controller) = enabled_with(QuirkFlags::NO_WRITE_ZEROES, plain());
    assert_eq!(controller.unwrap().limits().optional.oncs, Oncs::empty());
    let (puppet, controller) = enabled_with(QuirkFlags::WHOLE_ADMIN_PAGES, plain());
    assert_eq!((puppet.admin_entries(), controller.is_ok()), (64, true));
    let (_, controller) = enabled_with(QuirkFlags::UNDRIVABLE, plain());
    let error = controller.err().unwrap().to_string();
    assert_eq!(error, "PCI device 1234:5678 cannot be driven: so the test has it");

    let (puppet, controller) = enabled_with(QuirkFlags::IDENTIFY_CNS, plain());
    let mut controller = controller.unwrap();
    assert_eq!(controller.namespaces().unwrap().len(), 3, "each is asked for");
    let asked: Vec<_> = puppet.fetched(AdminOpcode::IDENTIFY).iter().map(|sqe| sqe.cns().raw()).collect();
    assert_eq!(asked, [1, 0, 0, 0], "nothing but CNS 00h and 01h");

    let (puppet, controller) = enabled_with(QuirkFlags::BOGUS_IDENTIFIERS | QuirkFlags::NO_DESCRIPTOR_LIST, plain());
    let mut controller = controller.unwrap();
    let namespace = controller.rescan(1).unwrap().unwrap();
    assert_eq!(controller.namespace_identity(&namespace).unwrap(), NamespaceIdentity::default());
    let list = Cns::NAMESPACE_IDENTIFICATION_DESCRIPTOR_LIST;
    assert!(puppet.fetched(AdminOpcode::IDENTIFY).iter().all(|sqe| sqe.cns() != list));

    for (flags, priority) in
        [(QuirkFlags::empty(), QueuePriority::URGENT), (QuirkFlags::MEDIUM_PRIORITY, QueuePriority::MEDIUM)]
    {
        let (puppet, controller) = enabled_with(flags, plain());
        drop(controller.unwrap().create_queue_pair::<()>(4));
        assert_eq!(puppet.fetched(AdminOpcode::CREATE_IO_SUBMISSION_QUEUE)[0].qprio(), priority);
    }
}

#[test]
fn a_controller_that_needs_it_is_left_alone_after_a_reset() {
    for (flags, alone) in [(QuirkFlags::empty(), false), (QuirkFlags::DELAY_BEFORE_READY, true)] {
        let (puppet, controller) = enabled_with(flags, identify(1));
        controller.unwrap().shutdown().unwrap();
        assert_eq!(puppet.left_alone() > 0, alone);
    }
}

proptest! {
    /// Whatever a device lists: the walk ends, and what it gives ascends and is within NN and the limit.
    #[test]
    fn any_list(
        pages in prop::collection::vec(prop::collection::vec(0u32..3000, 0..1024), 1..4),
        sorted: bool, nn in 0u32..3000, max in 0u32..3000,
    ) {
        let turn = AtomicUsize::new(0);
        let puppet = lister(nn, move |_| {
            let mut page = pages[turn.fetch_add(1, Ordering::Relaxed) % pages.len()].clone();
            if sorted {
                page.sort_unstable();
                page.dedup();
            }
            page
        });
        let mut controller = puppet.enable(ControllerConfig { max_namespaces: max, ..ControllerConfig::default() }).unwrap();
        if let Ok(nsids) = controller.active_namespaces() {
            prop_assert!(nsids.is_sorted_by(|a, b| a < b) && nsids.len() <= max as usize);
            prop_assert!(nsids.iter().all(|nsid| (1..=nn).contains(nsid)));
        }
    }
}
