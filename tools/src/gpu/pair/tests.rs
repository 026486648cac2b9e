use std::fs;

use proptest::prelude::*;

use super::*;
use crate::machine::Machine;

const GPU: &str = "0000:03:00.0";
const CONTROLLER: &str = "0000:04:00.0";
const SWITCH: &str = "pci0000:00/0000:00:01.0/0000:01:00.0";
/// Source validation, both redirects and forwarding, as the kernel switches them on; and nothing of it.
const ON: Option<[u8; 2]> = Some([0x5F, 0x1D]);
const OFF: Option<[u8; 2]> = Some([0x5F, 0]);

/// Both below one switch, whose ports have these registers.
fn below_a_switch(ports: [Option<[u8; 2]>; 2], groups: [Option<u32>; 2]) -> Machine {
    let machine = Machine::new();
    machine.bridge("pci0000:00", "0000:00:01.0", 4, ON);
    machine.bridge("pci0000:00/0000:00:01.0", "0000:01:00.0", 5, None);
    let functions = [(GPU, "0000:02:00.0", "0x030200"), (CONTROLLER, "0000:02:01.0", "0x010802")];
    for (((function, port, class), acs), group) in functions.into_iter().zip(ports).zip(groups) {
        machine.bridge(SWITCH, port, 6, acs);
        machine.place(&format!("{SWITCH}/{port}"), function, class, group);
    }
    machine
}

/// Each below a root port of its own.
fn below_root_ports(host_bridges: [&str; 2], acs: Option<[u8; 2]>, groups: [u32; 2]) -> Machine {
    let machine = Machine::new();
    let functions = [(GPU, "0000:00:01.0", "0x030200"), (CONTROLLER, "0000:00:02.0", "0x010802")];
    for (((function, port, class), host_bridge), group) in functions.into_iter().zip(host_bridges).zip(groups) {
        machine.bridge(host_bridge, port, 4, acs);
        machine.place(&format!("{host_bridge}/{port}"), function, class, Some(group));
    }
    machine
}

fn pair(machine: &Machine) -> Pair {
    let sysfs = machine.sysfs();
    let controller = sysfs.function(CONTROLLER.parse().unwrap()).unwrap();
    Pair::of(&sysfs, GPU, &controller)
}

fn told(machine: &Machine) -> (String, Option<String>) {
    let Told { text, remedy } = pair(machine).access_control().unwrap();
    (text, remedy)
}

#[test]
fn where_the_two_sit() {
    let one_host = below_root_ports(["pci0000:00", "pci0000:00"], ON, [7, 7]);
    let two_hosts = below_root_ports(["pci0000:00", "pci0000:80"], ON, [7, 8]);
    for (machine, expected) in [
        (
            below_a_switch([ON, ON], [Some(7), Some(8)]),
            "below one bridge (0000:01:00.0), 1 and 1 bridges up; NUMA node 0; IOMMU groups 7 and 8",
        ),
        (
            below_a_switch([ON, ON], [None, None]),
            "below one bridge (0000:01:00.0), 1 and 1 bridges up; NUMA node 0; no IOMMU group",
        ),
        (
            below_a_switch([ON, ON], [None, Some(8)]),
            "below one bridge (0000:01:00.0), 1 and 1 bridges up; NUMA node 0; IOMMU group 8, and none of the GPU",
        ),
        (
            one_host,
            "under one host bridge (pci0000:00): bytes pass the processor; NUMA node 0; one IOMMU group (7), so not isolated",
        ),
        (
            two_hosts,
            "under different host bridges: bytes pass the processor, and perhaps the link between sockets; NUMA node 0; \
             IOMMU groups 7 and 8",
        ),
    ] {
        assert_eq!(pair(&machine).place(), expected);
    }
    let machine = Machine::with_controllers();
    let controller = machine.sysfs().function(CONTROLLER.parse().unwrap()).unwrap();
    for nowhere in ["0000:7f:00.0", "", "GPU"] {
        let pair = Pair::of(&machine.sysfs(), nowhere, &controller);
        assert!(pair.place().starts_with("sysfs does not show where the two sit; IOMMU group 4, "), "{}", pair.place());
        assert_eq!((pair.access_control(), pair.ports()), (None, &[][..]));
    }
}

/// The text for each state of a switch's ports, whole.
#[test]
fn what_follows_of_a_switchs_ports() {
    let apart = [Some(7), Some(8)];
    let (gpu, controller) = ("GPU's port 0000:02:00.0", "controller's port 0000:02:01.0");
    let danger = "may turn in the switch that both are below, past the IOMMU: untranslated, by their address as it is. So one \
                  whose IOVA is by chance an address of the other's BARs goes astray: it reads or writes the other, not memory";
    let group = "; that is why both are in one IOMMU group, and VFIO gives the controller only while no other driver has the GPU";
    let own = "; the kernel has them in groups of their own all the same, so it takes them for isolated";
    let move_one =
        "move one of the two, so that they are below ports of the root complex, or of a switch, that have ACS";
    let switch_on =
        |port: &str| format!("let {port} redirect: ACS on in the firmware, no pci=disable_acs_redir for the kernel");
    let up = "requests of one for the other go up to the root complex, though the two have a switch in common: slower,";
    for (ports, groups, expected, remedy) in [
        (
            [ON, ON],
            apart,
            format!("{gpu} redirects, {controller} redirects: {up} and wanted, for so the IOMMU sees them"),
            None,
        ),
        (
            [ON, Some([0x5F, 0x5D])],
            apart,
            format!(
                "{gpu} redirects, {controller} redirects, but for addresses that are translated (ATS): {up} and wanted, for \
                 so the IOMMU sees them"
            ),
            None,
        ),
        (
            [ON, ON],
            [None, None],
            format!("{gpu} redirects, {controller} redirects: {up} and for nothing, as no IOMMU is there to see them"),
            None,
        ),
        (
            [OFF, OFF],
            [Some(7), Some(7)],
            format!(
                "{gpu} could redirect and does not, {controller} could redirect and does not: requests of either \
                 {danger}{group}"
            ),
            Some(switch_on("0000:02:00.0 and 0000:02:01.0")),
        ),
        (
            [ON, OFF],
            [Some(7), Some(7)],
            format!(
                "{gpu} redirects, {controller} could redirect and does not: requests of the controller {danger}{group}"
            ),
            Some(switch_on("0000:02:01.0")),
        ),
        (
            [None, ON],
            apart,
            format!("{gpu} has no ACS, {controller} redirects: requests of the GPU {danger}{own}"),
            Some(move_one.to_owned()),
        ),
        (
            [None, None],
            [None, None],
            format!(
                "{gpu} has no ACS, {controller} has no ACS: requests of either need not pass the processor; no IOMMU \
                 translates, so addresses are those of the bus"
            ),
            None,
        ),
        (
            [ON, None],
            [None, None],
            format!(
                "{gpu} redirects, {controller} has no ACS: requests of the controller need not pass the processor; no \
                 IOMMU translates, so addresses are those of the bus"
            ),
            None,
        ),
        (
            [Some([0x7F, 0x3D]), ON],
            apart,
            format!(
                "{gpu} redirects by the peer (egress control), {controller} redirects: which way requests of one for the \
                 other go is set port by port"
            ),
            None,
        ),
    ] {
        assert_eq!(told(&below_a_switch(ports, groups)), (expected, remedy));
    }
}

#[test]
fn between_root_ports_the_kernel_may_know_better() {
    let hosts = ["pci0000:00", "pci0000:00"];
    let (text, remedy) = told(&below_root_ports(hosts, None, [7, 8]));
    assert!(text.contains("requests of either may turn in the root complex, past the IOMMU"), "{text}");
    assert!(text.ends_with("so it takes them for isolated") && remedy.is_none(), "{text}");
    assert!(told(&below_root_ports(hosts, None, [7, 7])).1.unwrap().starts_with("move one of the two"));
    for host_bridges in [hosts, ["pci0000:00", "pci0000:80"]] {
        let (text, remedy) = told(&below_root_ports(host_bridges, ON, [7, 8]));
        assert!(text.ends_with("port 0000:00:02.0 redirects: the IOMMU sees requests of one for the other"), "{text}");
        assert_eq!(remedy, None);
    }
    // A root port that has ACS without that bit passes nothing to peers.
    let (text, remedy) = told(&below_root_ports(hosts, Some([0x01, 0x01]), [7, 8]));
    assert!(text.contains("passes nothing on to peers: the IOMMU sees"), "{text}");
    assert_eq!(remedy, None);
}

#[test]
fn what_cannot_be_read_is_said_and_nothing_is_made_of_it() {
    let machine = below_a_switch([OFF, OFF], [Some(7), Some(7)]);
    let port = "0000:02:01.0";
    let path = format!("sys/devices/{SWITCH}/{port}/config");
    let whole = fs::read(machine.sysfs().path(&path)).unwrap();
    let cut = |machine: &Machine, len: usize| machine.file(&path, &whole[..len]);
    let other = format!("sys/devices/{SWITCH}/0000:02:00.0/config");
    machine.file(&other, &whole[..64]);
    cut(&machine, 64);
    let (text, remedy) = told(&machine);
    let unknown = "cannot be asked: only root may read its configuration space";
    assert_eq!(text, format!("GPU's port 0000:02:00.0 {unknown}, controller's port {port} {unknown}"));
    assert_eq!(remedy.as_deref(), Some("ask again as root"));
    // Where one is known to be a danger, that is said.
    machine.file(&other, &whole);
    assert!(told(&machine).0.contains("requests of the GPU may turn"));
    let machine = below_a_switch([ON, ON], [Some(7), Some(8)]);
    for (len, expected) in [
        (256, format!("port {port} cannot be asked: its extended configuration space cannot be read")),
        (0, format!("port {port} does not answer")),
    ] {
        cut(&machine, len);
        let (text, remedy) = told(&machine);
        assert!(text.ends_with(&expected) && remedy.is_none(), "{text}");
    }
    fs::remove_file(machine.sysfs().path(&path)).unwrap();
    assert!(told(&machine).0.ends_with("cannot be read"));
}

#[test]
fn the_port_that_decides_is_the_one_below_what_they_have_in_common() {
    // The controller is below a second switch, which redirects; the port of the first above it does not.
    let machine = below_a_switch([ON, OFF], [Some(7), Some(7)]);
    let inner = format!("{SWITCH}/0000:02:01.0/0000:05:00.0");
    machine.bridge(&format!("{SWITCH}/0000:02:01.0"), "0000:05:00.0", 5, None);
    machine.bridge(&inner, "0000:06:00.0", 6, ON);
    machine.place(&format!("{inner}/0000:06:00.0"), "0000:07:00.0", "0x010802", Some(7));
    let sysfs = machine.sysfs();
    let deeper = Pair::of(&sysfs, GPU, &sysfs.function("0000:07:00.0".parse().unwrap()).unwrap());
    assert!(deeper.place().contains("1 and 3 bridges up"), "{}", deeper.place());
    let text = deeper.access_control().unwrap().text;
    assert!(text.contains("controller's port 0000:06:00.0 redirects: requests of the controller may turn"), "{text}");
    let ports: Vec<_> = deeper.ports().iter().map(|port| port.address.to_string()).collect();
    assert_eq!(
        ports,
        ["0000:02:00.0", "0000:02:01.0", "0000:06:00.0"],
        "the port towards the root complex is not among them"
    );
}

#[test]
fn functions_without_a_port_between_them() {
    let machine = Machine::new();
    machine.bridge("pci0000:00", "0000:00:01.0", 4, ON);
    for (function, class) in [(GPU, "0x030200"), (CONTROLLER, "0x010802")] {
        machine.place("pci0000:00/0000:00:01.0", function, class, Some(7));
    }
    assert_eq!(told(&machine), ("no port is between the two that could redirect".to_owned(), None));
    assert!(pair(&machine).place().starts_with("below one bridge (0000:00:01.0), 0 and 0 bridges up"));
    // A switch is one function of a device, and the GPU another: the switch's own port is the one that is beside the GPU.
    let machine = Machine::new();
    machine.bridge("pci0000:00", "0000:00:01.0", 4, ON);
    machine.place("pci0000:00/0000:00:01.0", GPU, "0x030200", Some(7));
    machine.bridge("pci0000:00/0000:00:01.0", "0000:03:00.1", 5, None);
    machine.bridge("pci0000:00/0000:00:01.0/0000:03:00.1", "0000:03:01.0", 6, ON);
    machine.place("pci0000:00/0000:00:01.0/0000:03:00.1/0000:03:01.0", CONTROLLER, "0x010802", Some(7));
    let (text, _) = told(&machine);
    let expected = "controller's port 0000:03:00.1 has no ACS, controller's port 0000:03:01.0 redirects: requests of the \
                    controller may turn in the bridge that both are below";
    assert!(text.starts_with(expected), "{text}");
    // Below a device of the root complex that has a bus of its own, in another domain.
    let machine = Machine::new();
    machine.bridge("pci0000:00", "0000:00:01.0", 4, ON);
    machine.place("pci0000:00/0000:00:01.0", GPU, "0x030200", Some(7));
    machine.bridge("pci0000:00", "0000:00:0e.0", 9, None);
    machine.bridge("pci0000:00/0000:00:0e.0/pci10000:e0", "10000:e0:06.0", 4, ON);
    machine.place("pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0", CONTROLLER, "0x010802", Some(8));
    let (text, _) = told(&machine);
    assert!(text.ends_with("controller's port 10000:e0:06.0 redirects: the IOMMU sees requests of one for the other"));
}

proptest! {
    /// Whatever the registers say, there is a text; and nobody is called safe whose port lets requests past the IOMMU.
    #[test]
    fn no_registers_panic_and_none_that_let_requests_past_are_called_seen(
        gpu: Option<[u8; 2]>, controller: Option<[u8; 2]>, group in 7u32..9,
    ) {
        let machine = below_a_switch([gpu, controller], [Some(7), Some(group)]);
        let pair = pair(&machine);
        let text = pair.access_control().unwrap().text;
        let straight = pair.ports().iter().any(|port| port.redirect() == Redirect::Straight);
        prop_assert_eq!(text.contains("past the IOMMU"), straight);
        prop_assert!(!(straight && text.contains("sees")));
    }
}
