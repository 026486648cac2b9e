use std::collections::HashSet;

use tentpeg_driver::gpu::StandIn;

use super::*;
use crate::machine::Machine;
use crate::report::{json, table};

fn stand_in(memory: u64) -> Arc<dyn Accelerator> {
    StandIn::new(memory)
}

fn object_of(rows: &[Row]) -> serde_json::Value {
    serde_json::from_str(&json(rows)).unwrap()
}

const DMA_BUF: &str = "direct by dma-buf mmap: the driver exports no dma-bufs: it needs the open kernel modules";
const GDRDRV: &str =
    "direct by gdrdrv: /dev/gdrdrv cannot be opened (errno 2): install gdrcopy 2.5 or newer and load its module";

#[test]
fn a_gpu_with_two_controllers() {
    let machine = Machine::with_gpu_below_a_switch();
    let known = GpuManagement { driver: "580.159.04".to_owned(), bar1_total: 1 << 38, bar1_free: 1 << 37 };
    let rows = rows(&machine.sysfs(), &stand_in(1 << 30), Some(&known));
    let expected = format!(
        "\
device                     cuda:0
name                       stand-in
PCI address                0000:00:00.0
driver release             580.159.04
CUDA version               0.0
memory                     1.00 GiB (1,073,741,824 B)
multiprocessors            1
compute capability         0.0
BAR1                       256 GiB (274,877,906,944 B)
free of BAR1               128 GiB (137,438,953,472 B)
reached by devices (RDMA)  yes
their writes ordered for   all devices
host can flush them        no
dma-buf export             no
dma-buf mmap               not known: the driver is older than the question
way of a drive's bytes     staged
why none better            {DMA_BUF}; {GDRDRV}; direct by iommufd: the device's addresses are translated by a type1 container, and this needs iommufd
controller                 0000:04:00.0
  place                    below one bridge (0000:01:00.0), 1 and 1 bridges up; NUMA node 0; one IOMMU group (7), so not isolated
  ACS                      GPU's port 0000:02:00.0 could redirect and does not, controller's port 0000:02:01.0 could redirect and does not: requests of either may turn in the switch that both are below, past the IOMMU: untranslated, by their address as it is. So one whose IOVA is by chance an address of the other's BARs goes astray: it reads or writes the other, not memory; that is why both are in one IOMMU group, and VFIO gives the controller only while no other driver has the GPU
  remedy                   let 0000:02:00.0 and 0000:02:01.0 redirect: ACS on in the firmware, no pci=disable_acs_redir for the kernel
controller                 0000:05:00.0
  place                    under one host bridge (pci0000:00): bytes pass the processor; NUMA node 0; IOMMU groups 7 and 8
  ACS                      GPU's port 0000:00:01.0 redirects, GPU's port 0000:02:00.0 could redirect and does not, controller's port 0000:00:02.0 redirects: the IOMMU sees requests of one for the other
"
    );
    assert_eq!(table(&rows), expected);
    let keys: Vec<_> = rows.iter().filter_map(|row| row.key).collect();
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len(), "{keys:?}");
}

#[test]
fn the_same_for_programs() {
    let machine = Machine::with_gpu_below_a_switch();
    let known = GpuManagement { driver: "580.159.04".to_owned(), bar1_total: 1 << 38, bar1_free: 1 << 37 };
    let mut shown = object_of(&rows(&machine.sysfs(), &stand_in(1 << 30), Some(&known)));
    let controllers = shown.as_object_mut().unwrap().remove("controllers").unwrap();
    let closed = shown.as_object_mut().unwrap().remove("ways_closed").unwrap();
    let expected = json!({
        "device": "cuda:0", "name": "stand-in", "pci_address": "0000:00:00.0", "driver_release": "580.159.04",
        "cuda_version": "0.0", "memory_bytes": 1 << 30, "multiprocessors": 1, "compute_capability": "0.0",
        "bar1_bytes": 1u64 << 38, "bar1_free_bytes": 1u64 << 37, "rdma": true, "writes_ordered_for": "all devices",
        "host_flush": false, "dma_buf_export": false, "way": "staged",
    });
    assert_eq!(shown, expected);
    let [first, second] = &controllers.as_array().unwrap()[..] else { panic!("{controllers}") };
    assert_eq!(
        first["ports"],
        json!([
            {"pci_address": "0000:02:00.0", "side": "gpu", "requests_for_peers": "straight"},
            {"pci_address": "0000:02:01.0", "side": "controller", "requests_for_peers": "straight"},
        ])
    );
    assert!(first["access_control"].as_str().unwrap().contains("past the IOMMU") && first["remedy"].is_string());
    assert_eq!((&second["pci_address"], second.get("remedy")), (&json!("0000:05:00.0"), None));
    assert_eq!(second["ports"][2]["requests_for_peers"], "redirected");
    for controller in [first, second] {
        assert_eq!((&controller["way"], &controller["ways_closed"]), (&json!("staged"), &closed));
    }
    assert_eq!(closed[1]["way"], "direct by gdrdrv");
    assert!(closed[1]["reason"].as_str().unwrap().starts_with("/dev/gdrdrv cannot be opened"));
}

#[test]
fn a_controller_for_which_the_way_is_another_says_so() {
    let machine = Machine::with_gpu_below_a_switch();
    machine.function("0000:09:00.0", "0x010802", Some("nvme"), None);
    let rows = rows(&machine.sysfs(), &stand_in(1 << 30), None);
    let shown = table(&rows);
    let (_, last) = shown.split_once("controller                 0000:09:00.0\n").unwrap();
    let neither = "the device's addresses are translated by neither type1 nor iommufd, and this needs";
    let expected = format!(
        "  place                    sysfs does not show where the two sit; NUMA node 0; IOMMU group 7, and none of the controller
  way of its bytes         staged
  why none better          direct by dma-buf mmap: {neither} a type1 container; direct by gdrdrv: {neither} a type1 container; direct by iommufd: {neither} iommufd
"
    );
    assert_eq!(last, expected);
    assert_eq!(object_of(&rows)["controllers"][2]["access_control"], serde_json::Value::Null);
}

#[test]
fn what_is_not_known_is_left_out_or_named() {
    let small = rows(&Machine::new().sysfs(), &stand_in(4096), None);
    let shown = table(&small);
    assert!(!shown.contains("driver release") && !shown.contains("BAR1"), "{shown}");
    assert!(shown.contains("\nway is not known           ") && !shown.contains("way of a drive's bytes"), "{shown}");
    assert!(shown.ends_with("\ncontrollers                none on the PCI bus\n"), "{shown}");
    assert_eq!(object_of(&small)["controllers"], json!([]));
    let nowhere = rows(&Sysfs::below("/nonexistent"), &stand_in(1 << 30), None);
    assert!(table(&nowhere).ends_with("is sysfs mounted on /sys?\n"));
    assert!(object_of(&nowhere)["controllers_error"].is_string());
}

#[test]
fn for_whom_writes_are_ordered_and_what_the_driver_can() {
    let of = |writes_ordering, can: bool, dma_buf_mmap| {
        let info = GpuInfo {
            writes_ordering,
            host_flush: can,
            rdma: can,
            dma_buf: can,
            dma_buf_mmap,
            ..stand_in(1).info().clone()
        };
        object_of(&reach(&info))
    };
    let shown = of(WritesOrdering::Owner, true, Some(true));
    assert_eq!(
        shown,
        json!({
            "rdma": true, "writes_ordered_for": "owner", "host_flush": true, "dma_buf_export": true, "dma_buf_mmap": true,
        })
    );
    let shown = of(WritesOrdering::Nobody, false, Some(false));
    assert_eq!(
        shown,
        json!({
            "rdma": false, "writes_ordered_for": "nobody", "host_flush": false, "dma_buf_export": false, "dma_buf_mmap": false,
        })
    );
    assert_eq!(of(WritesOrdering::AllDevices, true, None).get("dma_buf_mmap"), None);
}
