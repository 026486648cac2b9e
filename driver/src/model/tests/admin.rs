//! Identify, log pages, features, Abort and asynchronous event requests.

use zerocopy::{FromBytes, IntoBytes};

use super::super::{ModelConfig, StoreConfig};
use super::host::{Host, count, small};
use crate::dma::{HostMemory, Region};
use crate::spec::ZeroesBased;
use crate::spec::command::{
    AdminOpcode, Cns, Csi, FeatureIdentifier, Fuse, LogPageIdentifier, NSID_ALL, Psdt, Select, Sqe,
};
use crate::spec::identify::{
    ActiveNamespaceList, Descriptors, IdentifyController, IdentifyNamespace, NamespaceIdentifier, Nsattr,
};
use crate::spec::log::{ErrorInformationLogEntry, FirmwareSlotLog, SmartLog};
use crate::spec::registers::Vs;
use crate::spec::status::StatusCode;

/// Executes a command that returns data, and reads the first `N` bytes.
fn fetch<const N: usize>(host: &mut Host, data: &Region<HostMemory>, sqe: Sqe) -> Result<[u8; N], StatusCode> {
    data.view().fill(0xAA);
    match host.code(sqe.with_prp1(data.iova().get())) {
        StatusCode::SUCCESS => {
            let mut bytes = [0; N];
            data.view().read(0, &mut bytes);
            Ok(bytes)
        }
        code => Err(code),
    }
}

#[test]
fn who_the_controller_and_its_namespace_are() {
    let mut host = Host::new(ModelConfig {
        serial: "S-77".to_owned(),
        model_number: "A model".to_owned(),
        mdts: 5,
        noiob: 256,
        aerl: 7,
        ..small()
    });
    let data = host.memory(8192);
    let page = fetch::<4096>(&mut host, &data, Sqe::identify(Cns::CONTROLLER, 0)).unwrap();
    let controller = IdentifyController::read_from_bytes(&page).unwrap();
    assert_eq!((controller.serial_number(), controller.model_number()), ("S-77".into(), "A model".into()));
    assert!(controller.nvm_subsystem_nqn().starts_with("nqn.2014-08.org.nvmexpress:uuid:"));
    assert_eq!((controller.mdts, controller.nn, controller.sqes, controller.cqes), (5, 1, 0x66, 0x44));
    assert_eq!((controller.ver, controller.aerl.count()), (Vs::new(2, 1, 0), 8));
    assert!(controller.vwc.present());

    let page = fetch::<4096>(&mut host, &data, Sqe::identify(Cns::NAMESPACE, 1)).unwrap();
    let namespace = IdentifyNamespace::read_from_bytes(&page).unwrap();
    let blocks = (16 << 20) / 512;
    assert_eq!((namespace.nsze, namespace.ncap, namespace.noiob), (blocks, blocks, 256));
    assert_eq!(namespace.current_lba_format().and_then(|format| format.data_size()), Some(512));
    assert_eq!(namespace.nsattr, Nsattr::empty());

    let page = fetch::<4096>(&mut host, &data, Sqe::identify(Cns::NAMESPACE_IDENTIFICATION_DESCRIPTOR_LIST, 1));
    let page = page.unwrap();
    let ids: Vec<_> = Descriptors::new(&page).map(Result::unwrap).collect();
    assert!(ids.contains(&NamespaceIdentifier::Eui64(namespace.eui64)), "{ids:?}");
    assert!(ids.contains(&NamespaceIdentifier::Nguid(namespace.nguid)));
    assert!(ids.contains(&NamespaceIdentifier::Csi(Csi::NVM)));
    assert_ne!((namespace.eui64, namespace.nguid), ([0; 8], [0; 16]));

    let mut other = Host::new(ModelConfig { serial: "S-78".to_owned(), ..small() });
    let data = other.memory(4096);
    let page = fetch::<4096>(&mut other, &data, Sqe::identify(Cns::NAMESPACE, 1)).unwrap();
    let others = IdentifyNamespace::read_from_bytes(&page).unwrap();
    assert_ne!((namespace.eui64, namespace.nguid), (others.eui64, others.nguid), "another serial number");
}

#[test]
fn which_namespaces_there_are() {
    let mut host = Host::new(small());
    let data = host.memory(4096);
    let mut list = |nsid| {
        fetch::<4096>(&mut host, &data, Sqe::identify(Cns::ACTIVE_NAMESPACE_LIST, nsid))
            .map(|page| ActiveNamespaceList::read_from_bytes(&page).unwrap().iter().collect::<Vec<_>>())
    };
    assert_eq!(list(0), Ok(vec![1]));
    assert_eq!(list(1), Ok(vec![]));
    assert_eq!(list(NSID_ALL - 2), Ok(vec![]));
    assert_eq!(list(NSID_ALL - 1), Err(StatusCode::INVALID_NAMESPACE_OR_FORMAT));
    assert_eq!(list(NSID_ALL), Err(StatusCode::INVALID_NAMESPACE_OR_FORMAT));
}

#[test]
fn identify_answers_what_it_has_and_refuses_the_rest() {
    let mut host = Host::new(small());
    let data = host.memory(4096);
    for (sqe, code) in [
        (Sqe::identify(Cns::NAMESPACE, 0), StatusCode::INVALID_NAMESPACE_OR_FORMAT),
        (Sqe::identify(Cns::NAMESPACE, 2), StatusCode::INVALID_NAMESPACE_OR_FORMAT),
        (Sqe::identify(Cns::NAMESPACE, NSID_ALL), StatusCode::INVALID_NAMESPACE_OR_FORMAT),
        (Sqe::identify(Cns::NAMESPACE_IDENTIFICATION_DESCRIPTOR_LIST, 2), StatusCode::INVALID_NAMESPACE_OR_FORMAT),
        (Sqe::identify(Cns::IO_COMMAND_SET_NAMESPACE, 1), StatusCode::SUCCESS),
        (Sqe::identify(Cns::IO_COMMAND_SET_NAMESPACE, 2), StatusCode::INVALID_NAMESPACE_OR_FORMAT),
        (
            Sqe::identify(Cns::IO_COMMAND_SET_NAMESPACE, 1).with_identify_csi(Csi::ZONED_NAMESPACE),
            StatusCode::INVALID_FIELD_IN_COMMAND,
        ),
        (Sqe::identify(Cns::IO_COMMAND_SET_CONTROLLER, 0), StatusCode::SUCCESS),
        (Sqe::identify(Cns::INDEPENDENT_NAMESPACE, 1), StatusCode::SUCCESS),
        (Sqe::identify(Cns::from_raw(0xEE), 0), StatusCode::INVALID_FIELD_IN_COMMAND),
        (Sqe::identify(Cns::CONTROLLER, 0).with_fuse(Fuse::FIRST), StatusCode::INVALID_FIELD_IN_COMMAND),
        (Sqe::identify(Cns::CONTROLLER, 0).with_psdt(Psdt::SGL_MPTR_BUFFER), StatusCode::INVALID_FIELD_IN_COMMAND),
        (Sqe::admin(AdminOpcode::NAMESPACE_MANAGEMENT, 1), StatusCode::INVALID_COMMAND_OPCODE),
        (Sqe::admin(AdminOpcode::KEEP_ALIVE, 0), StatusCode::INVALID_COMMAND_OPCODE),
        (Sqe::admin(AdminOpcode::from_raw(0xFF), 1), StatusCode::INVALID_COMMAND_OPCODE),
    ] {
        let got = fetch::<4096>(&mut host, &data, sqe).err().unwrap_or(StatusCode::SUCCESS);
        assert_eq!(got, code, "{sqe:?}");
    }
    assert_eq!(host.code(Sqe::identify(Cns::CONTROLLER, 0)), StatusCode::DATA_TRANSFER_ERROR, "PRP1 is zero");
    // A page of data at an offset needs PRP2.
    let end = data.range().end();
    let across = Sqe::identify(Cns::CONTROLLER, 0).with_prp1(end - 2048).with_prp2(data.iova().get());
    assert_eq!(host.code(across), StatusCode::SUCCESS);
    assert_eq!(host.model.counters().admin_bytes, 4 * 4096);
}

fn log(lid: LogPageIdentifier, bytes: u64) -> Sqe {
    Sqe::get_log_page(lid, NSID_ALL, ZeroesBased::<u32>::from_count(bytes / 4).unwrap())
}

#[test]
fn smart_counts_what_was_done() {
    let mut host = Host::new(small());
    let mut pair = host.io_pair(1, 8);
    let data = host.memory(64 << 10);
    let list = host.memory(4096);
    list.view().write_words(0, &(1..16).map(|page| data.iova().get() + page * 4096).collect::<Vec<_>>());
    for _ in 0..17 {
        let read = Sqe::read(1, 0, count(128)).with_prp1(data.iova().get()).with_prp2(list.iova().get());
        assert_eq!(host.io_code(&mut pair, read), StatusCode::SUCCESS);
    }
    assert_eq!(host.io_code(&mut pair, Sqe::write(1, 0, count(1)).with_prp1(data.iova().get())), StatusCode::SUCCESS);
    let page = fetch::<512>(&mut host, &data, log(LogPageIdentifier::SMART_HEALTH_INFORMATION, 512)).unwrap();
    let smart = SmartLog::read_from_bytes(&page).unwrap();
    // 17 x 64 KiB are 2,176 units of 512 bytes: three thousands, rounded up.
    assert_eq!((smart.data_units_read.get(), smart.data_units_written.get()), (3, 1));
    assert_eq!((smart.host_read_commands.get(), smart.host_write_commands.get()), (17, 1));
    assert_eq!((smart.celsius(), smart.available_spare, smart.power_cycles.get()), (Some(35), 100, 1));
    assert!(smart.critical_warning.is_empty());
    let counters = host.model.counters();
    assert_eq!((counters.prp_list_entries, counters.prp_list_pages), (17 * 15, 17));
}

#[test]
fn a_log_page_in_parts_and_past_its_end() {
    let mut host = Host::new(small());
    let data = host.memory(8192);
    let smart = LogPageIdentifier::SMART_HEALTH_INFORMATION;
    let whole = fetch::<516>(&mut host, &data, log(smart, 512)).unwrap();
    assert_eq!(whole[512..], [0xAA; 4], "not a byte more than was asked for");
    let part = fetch::<8>(&mut host, &data, log(smart, 8).with_lpo(0x70)).unwrap();
    assert_eq!(part, whole[0x70..0x78]);
    let longer = fetch::<1024>(&mut host, &data, log(smart, 1024)).unwrap();
    assert_eq!((&longer[..512], &longer[512..]), (&whole[..512], &[0; 512][..]));
    for sqe in [log(smart, 8).with_lpo(516), log(smart, 8).with_lpo(2), log(smart, 8).with_ot(true)] {
        assert_eq!(fetch::<8>(&mut host, &data, sqe), Err(StatusCode::INVALID_FIELD_IN_COMMAND));
    }
    assert_eq!(fetch::<8>(&mut host, &data, log(LogPageIdentifier::DISCOVERY, 8)), Err(StatusCode::INVALID_LOG_PAGE));
    // MDTS is 2 MiB.
    assert_eq!(fetch::<8>(&mut host, &data, log(smart, (2 << 20) + 4)), Err(StatusCode::INVALID_FIELD_IN_COMMAND));
    let firmware = fetch::<512>(&mut host, &data, log(LogPageIdentifier::FIRMWARE_SLOT_INFORMATION, 512)).unwrap();
    let firmware = FirmwareSlotLog::read_from_bytes(&firmware).unwrap();
    assert_eq!((firmware.active_slot(), firmware.revision(1)), (1, Some("1.0".into())));
}

#[test]
fn the_error_log_has_the_newest_first() {
    let mut host = Host::new(small());
    let mut pair = host.io_pair(3, 8);
    let data = host.memory(8192);
    assert_eq!(
        host.io_code(&mut pair, Sqe::read(9, 0x1234, count(1)).with_cid(7)),
        StatusCode::INVALID_NAMESPACE_OR_FORMAT
    );
    assert_eq!(host.code(Sqe::admin(AdminOpcode::SECURITY_SEND, 0).with_cid(8)), StatusCode::INVALID_COMMAND_OPCODE);
    let bytes = fetch::<192>(&mut host, &data, log(LogPageIdentifier::ERROR_INFORMATION, 192)).unwrap();
    let [newest, older, none] = <[ErrorInformationLogEntry; 3]>::read_from_bytes(bytes.as_bytes()).unwrap();
    assert_eq!((newest.error_count, newest.sqid, newest.cid), (2, 0, 8));
    assert_eq!((older.error_count, older.sqid, older.cid, older.nsid, older.lba), (1, 3, 7, 9, 0x1234));
    assert_eq!(older.status_info.status().code(), StatusCode::INVALID_NAMESPACE_OR_FORMAT);
    assert_eq!(none, ErrorInformationLogEntry::default());
    for _ in 0..70 {
        host.code(Sqe::admin(AdminOpcode::SECURITY_SEND, 0));
    }
    let bytes = fetch::<4096>(&mut host, &data, log(LogPageIdentifier::ERROR_INFORMATION, 4096)).unwrap();
    let entries = <[ErrorInformationLogEntry; 64]>::read_from_bytes(bytes.as_bytes()).unwrap();
    assert_eq!((entries[0].error_count, entries[63].error_count), (72, 9));
}

#[test]
fn features() {
    let mut host = Host::new(small());
    let wce = FeatureIdentifier::VOLATILE_WRITE_CACHE;
    let get = |fid| Sqe::get_features(fid, Select::CURRENT, 0);
    assert_eq!(host.admin(get(wce)).dw0, 1);
    assert_eq!(host.code(Sqe::set_features(wce, 0, 0)), StatusCode::SUCCESS);
    assert_eq!(host.admin(get(wce)).dw0, 0);
    host.disable();
    host.enable();
    assert_eq!(host.admin(get(wce)).dw0, 1, "a reset takes it back");
    let saved = Sqe::set_features(wce, 0, 0).with_sv(true);
    assert_eq!(host.code(saved), StatusCode::FEATURE_IDENTIFIER_NOT_SAVEABLE);
    assert_eq!(host.admin(get(wce).with_sel(Select::DEFAULT)).dw0, 1);
    let mut host = Host::new(ModelConfig { volatile_write_cache: false, ..small() });
    assert_eq!(host.code(get(wce)), StatusCode::INVALID_FIELD_IN_COMMAND);
    assert_eq!(host.code(Sqe::set_features(wce, 0, 1)), StatusCode::INVALID_FIELD_IN_COMMAND);
}

#[test]
fn event_requests_wait_up_to_the_limit_and_can_be_aborted() {
    let mut host = Host::new(ModelConfig { aerl: 1, store: StoreConfig::Null, ..small() });
    let request = |cid| Sqe::asynchronous_event_request().with_cid(cid);
    for cid in [21, 22] {
        host.admin.push(request(cid));
    }
    host.admin.ring();
    for _ in 0..5 {
        host.model.turn();
    }
    assert!(host.admin.take().is_none(), "they wait");
    assert_eq!(host.code(request(23)), StatusCode::ASYNCHRONOUS_EVENT_REQUEST_LIMIT_EXCEEDED);
    assert_eq!(host.code(Sqe::admin(AdminOpcode::SECURITY_SEND, 0).with_cid(22)), StatusCode::COMMAND_ID_CONFLICT);
    assert_eq!(host.admin(Sqe::abort(0, 99).with_cid(1)).dw0, 1, "not aborted");
    assert_eq!(host.admin(Sqe::abort(1, 21).with_cid(1)).dw0, 1, "another queue's");

    host.admin.push(Sqe::abort(0, 21).with_cid(2));
    host.admin.ring();
    for _ in 0..5 {
        host.model.turn();
    }
    let ends: Vec<_> =
        std::iter::from_fn(|| host.admin.take()).map(|cqe| (cqe.cid, cqe.dw0, cqe.status.status().code())).collect();
    assert_eq!(ends.len(), 2);
    assert!(ends.contains(&(2, 0, StatusCode::SUCCESS)), "{ends:?}");
    assert!(ends.contains(&(21, 0, StatusCode::COMMAND_ABORT_REQUESTED)), "{ends:?}");

    host.disable();
    host.enable();
    assert_eq!(host.code(Sqe::abort(0, 22).with_cid(22)), StatusCode::SUCCESS, "a reset drops them");
}
