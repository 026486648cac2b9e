//! A GPU and a controller on one bus: where the two sit, and what the ports between them do with requests of one for the other.
//!
//! Of two functions below a switch, or below the root complex, each sends requests up through ports until one is reached that is
//! above the other, too. The last port before that place is where a request for the other may turn: Access Control Services of
//! *that* port say whether it does, or goes on up to the root complex and its IOMMU first (PCI Express Base 6.0, 6.12). What ports
//! further down are set to decides of other pairs; they are told all the same, because the kernel makes IOMMU groups by all of them.

use std::fs;

use tentpeg_driver::bus::{AccessControl, AcsControls, PciAddress, PciFunction, PortType, Sysfs};

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Gpu,
    Controller,
}

impl Side {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gpu => "GPU",
            Self::Controller => "controller",
        }
    }
}

/// What a port does with requests for a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// They go up.
    Up,
    /// It says of itself that it passes none on to peers: there is nothing to redirect.
    NoPeers,
    /// They go straight to the peer.
    Straight,
    /// Its egress control vector says for which peer what.
    ByPeer,
    /// It cannot be told.
    Unknown,
}

impl Redirect {
    /// Its name for programs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Up => "redirected",
            Self::NoPeers => "none",
            Self::Straight => "straight",
            Self::ByPeer => "by_peer",
            Self::Unknown => "unknown",
        }
    }
}

/// A port between one of the two and what they have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) side: Side,
    pub(crate) address: PciAddress,
    kind: Option<PortType>,
    access: AccessControl,
}

impl Port {
    fn read(sysfs: &Sysfs, side: Side, address: PciAddress) -> Self {
        let space = sysfs.config_space(address);
        let kind = space.as_ref().and_then(|space| space.port_type());
        let access = space.map_or(AccessControl::OutOfReach, |space| space.access_control());
        Self { side, address, kind, access }
    }

    /// Whether it is one whose registers matter. A switch's port towards the root complex has nothing to redirect, but where it is
    /// the topmost: then it is one function of a device, and the other is beside it. A device with bridges of its own below it is
    /// no port.
    fn may_redirect(&self, is_topmost: bool) -> bool {
        match self.kind {
            Some(PortType::Upstream) => is_topmost,
            Some(PortType::Endpoint) => false,
            Some(PortType::Root | PortType::Downstream | PortType::Other(_)) | None => true,
        }
    }

    pub(crate) fn redirect(&self) -> Redirect {
        match self.access {
            AccessControl::Present(acs) if acs.enabled.contains(AcsControls::EGRESS_CONTROL) => Redirect::ByPeer,
            AccessControl::Present(acs) if acs.enabled.contains(AcsControls::REQUEST_REDIRECT) => Redirect::Up,
            // Whoever passes requests on to peers has to have the bit (6.12.1.1).
            AccessControl::Present(acs) if !acs.capable.contains(AcsControls::REQUEST_REDIRECT) => Redirect::NoPeers,
            AccessControl::Present(_) | AccessControl::Absent => Redirect::Straight,
            AccessControl::NeedsRoot | AccessControl::OutOfReach | AccessControl::Silent => Redirect::Unknown,
        }
    }

    /// What it does, as a continuation of its name.
    pub(crate) fn words(&self) -> &'static str {
        match (self.redirect(), self.access) {
            (Redirect::ByPeer, _) => "redirects by the peer (egress control)",
            (Redirect::NoPeers, _) => "passes nothing on to peers",
            (Redirect::Up, AccessControl::Present(acs)) if acs.enabled.contains(AcsControls::DIRECT_TRANSLATED) => {
                "redirects, but for addresses that are translated (ATS)"
            }
            (Redirect::Up, _) => "redirects",
            (_, AccessControl::Present(_)) => "could redirect and does not",
            (_, AccessControl::Absent) => "has no ACS",
            (_, AccessControl::NeedsRoot) => "cannot be asked: only root may read its configuration space",
            (_, AccessControl::OutOfReach) => "cannot be asked: its extended configuration space cannot be read",
            (_, AccessControl::Silent) => "does not answer",
        }
    }
}

/// Where what the two send each other turns.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Meeting {
    /// Below a bridge that both are below, a switch's or another.
    Bridge { address: PciAddress, is_switch: bool },
    /// In the root complex, below this host bridge.
    HostBridge(String),
    /// In the root complex or past it: they have no host bridge in common.
    Apart,
}

/// What is to be told of the ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    /// What they do, and what follows.
    pub(crate) text: String,
    /// What to do about it, where it is not as well as it could be.
    pub(crate) remedy: Option<String>,
}

/// A GPU and a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pair {
    /// `None`: sysfs does not show where one of them sits.
    meeting: Option<Meeting>,
    /// Bridges from each up to where they meet, that not among them.
    hops: [usize; 2],
    /// Those of them that are ports which may redirect: the topmost first, the GPU's before the controller's.
    ports: Vec<Port>,
    nodes: [Option<u32>; 2],
    groups: [Option<u32>; 2],
}

impl Pair {
    /// The GPU at `gpu`, as CUDA writes addresses, and a controller.
    pub(crate) fn of(sysfs: &Sysfs, gpu: &str, controller: &PciFunction) -> Self {
        let gpu = gpu.parse().ok().and_then(|address| sysfs.function(address).ok());
        let of_gpu = |field: fn(&PciFunction) -> Option<u32>| gpu.as_ref().and_then(field);
        let nodes = [of_gpu(|gpu| gpu.numa_node), controller.numa_node];
        let groups = [of_gpu(|gpu| gpu.iommu_group), controller.iommu_group];
        let mut pair = Self { meeting: None, hops: [0; 2], ports: Vec::new(), nodes, groups };
        let first = gpu.as_ref().and_then(|gpu| place(sysfs, gpu.address));
        if let Some((first, second)) = first.zip(place(sysfs, controller.address)) {
            let shared = first.iter().zip(&second).take_while(|(first, second)| first == second).count();
            pair.meeting = Some(meeting(sysfs, shared.checked_sub(1).and_then(|last| first.get(last))));
            // All but the function itself and, where nothing is shared, the host bridge.
            let own = |parts: &[String]| {
                let own = parts.get(shared.max(1)..parts.len() - 1).unwrap_or_default();
                own.iter().filter_map(|part| part.parse().ok()).collect::<Vec<PciAddress>>()
            };
            let own = [(Side::Gpu, own(&first)), (Side::Controller, own(&second))];
            pair.hops = [own[0].1.len(), own[1].1.len()];
            for (side, own) in own {
                let ports = own.iter().map(|address| Port::read(sysfs, side, *address)).enumerate();
                pair.ports.extend(ports.filter(|(place, port)| port.may_redirect(*place == 0)).map(|(_, port)| port));
            }
        }
        pair
    }

    /// The ports between the two.
    pub(crate) fn ports(&self) -> &[Port] {
        &self.ports
    }

    /// Where the two sit.
    pub(crate) fn place(&self) -> String {
        let [one, other] = self.hops;
        let place = match &self.meeting {
            Some(Meeting::Bridge { address, .. }) => {
                format!("below one bridge ({address}), {one} and {other} bridges up")
            }
            Some(Meeting::HostBridge(bridge)) => format!("under one host bridge ({bridge}): bytes pass the processor"),
            Some(Meeting::Apart) => {
                "under different host bridges: bytes pass the processor, and perhaps the link between sockets"
                    .to_owned()
            }
            None => "sysfs does not show where the two sit".to_owned(),
        };
        let nodes = match self.nodes {
            [Some(one), Some(other)] if one == other => format!("; NUMA node {one}"),
            [Some(one), Some(other)] => format!("; NUMA nodes {one} and {other}"),
            _ => String::new(),
        };
        let groups = match self.groups {
            [Some(one), Some(other)] if one == other => format!("; one IOMMU group ({one}), so not isolated"),
            [Some(one), Some(other)] => format!("; IOMMU groups {one} and {other}"),
            [None, None] => "; no IOMMU group".to_owned(),
            [Some(group), None] => format!("; IOMMU group {group}, and none of the controller"),
            [None, Some(group)] => format!("; IOMMU group {group}, and none of the GPU"),
        };
        format!("{place}{nodes}{groups}")
    }

    /// What the ports do with requests of one for the other, and what follows. `None`: sysfs does not show where they sit.
    pub(crate) fn access_control(&self) -> Option<Told> {
        let meeting = self.meeting.as_ref()?;
        let good = |text: &str| Told { text: text.to_owned(), remedy: None };
        if self.ports.is_empty() {
            return Some(good("no port is between the two that could redirect"));
        }
        let ports =
            self.ports.iter().map(|port| format!("{}'s port {} {}", port.side.name(), port.address, port.words()));
        let mut told = self.consequence(meeting);
        let text = [ports.collect::<Vec<_>>().join(", "), told.text];
        told.text = text.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(": ");
        Some(told)
    }

    /// The port at which what a side sends to the other may turn.
    fn turn(&self, side: Side) -> Option<&Port> {
        self.ports.iter().find(|port| port.side == side)
    }

    fn consequence(&self, meeting: &Meeting) -> Told {
        let turns: Vec<_> = [Side::Gpu, Side::Controller].into_iter().filter_map(|side| self.turn(side)).collect();
        let is = |redirect| turns.iter().filter(move |port| port.redirect() == redirect);
        let straight: Vec<&Port> = is(Redirect::Straight).copied().collect();
        let translates = self.groups.iter().any(Option::is_some);
        let told = |text: String| Told { text, remedy: None };
        if translates && !straight.is_empty() {
            return self.past_the_iommu(meeting, &straight);
        }
        if is(Redirect::Unknown).next().is_some() {
            let needs_root = turns.iter().any(|port| port.access == AccessControl::NeedsRoot);
            return Told { text: String::new(), remedy: needs_root.then(|| "ask again as root".to_owned()) };
        }
        if is(Redirect::ByPeer).next().is_some() {
            return told("which way requests of one for the other go is set port by port".to_owned());
        }
        told(match meeting {
            Meeting::Bridge { is_switch, .. } if straight.is_empty() => {
                let wanted = if translates {
                    "and wanted, for so the IOMMU sees them"
                } else {
                    "and for nothing, as no IOMMU is there to see them"
                };
                format!(
                    "requests of one for the other go up to the root complex, though the two have a {} in common: slower, {wanted}",
                    bridge(*is_switch)
                )
            }
            Meeting::Bridge { .. } => format!(
                "requests of {} need not pass the processor; no IOMMU translates, so addresses are those of the bus",
                sides(&straight)
            ),
            _ if translates => "the IOMMU sees requests of one for the other".to_owned(),
            _ => "no IOMMU translates, so addresses are those of the bus".to_owned(),
        })
    }

    /// Requests may turn where no IOMMU has seen them, and there is one: why that is a danger.
    fn past_the_iommu(&self, meeting: &Meeting, straight: &[&Port]) -> Told {
        let who = sides(straight);
        let place = match meeting {
            Meeting::Bridge { is_switch, .. } => format!("in the {} that both are below", bridge(*is_switch)),
            Meeting::HostBridge(_) | Meeting::Apart => "in the root complex".to_owned(),
        };
        let danger = format!(
            "requests of {who} may turn {place}, past the IOMMU: untranslated, by their address as it is. So one \
             whose IOVA is by chance an address of the other's BARs goes astray: it reads or writes the other, not memory"
        );
        let [one, other] = self.groups;
        let (groups, is_one) = match one.zip(other) {
            Some((one, other)) if one == other => (
                "; that is why both are in one IOMMU group, and VFIO gives the controller only while no other driver has the GPU",
                true,
            ),
            Some(_) => {
                ("; the kernel has them in groups of their own all the same, so it takes them for isolated", false)
            }
            None => ("", false),
        };
        // Between root ports the kernel may know better than their registers say; of a switch it cannot.
        let is_fault = is_one || matches!(meeting, Meeting::Bridge { .. });
        let addresses = straight.iter().map(|port| port.address.to_string()).collect::<Vec<_>>().join(" and ");
        let can = straight.iter().all(|port| port.access != AccessControl::Absent);
        let remedy = if can {
            format!("let {addresses} redirect: ACS on in the firmware, no pci=disable_acs_redir for the kernel")
        } else {
            "move one of the two, so that they are below ports of the root complex, or of a switch, that have ACS"
                .to_owned()
        };
        Told { text: format!("{danger}{groups}"), remedy: is_fault.then_some(remedy) }
    }
}

/// Whose ports these are.
fn sides(ports: &[&Port]) -> String {
    match ports {
        [port] => format!("the {}", port.side.name()),
        _ => "either".to_owned(),
    }
}

fn bridge(is_switch: bool) -> &'static str {
    if is_switch { "switch" } else { "bridge" }
}

/// Where a function sits: its host bridge, the bridges below, and itself, by the folders of sysfs, whose nesting is that of the
/// bus.
fn place(sysfs: &Sysfs, address: PciAddress) -> Option<Vec<String>> {
    let folder = fs::canonicalize(sysfs.function_folder(address)).ok()?;
    let parts = folder.components().map(|part| part.as_os_str().to_string_lossy().into_owned());
    let on_bus: Vec<_> = parts.skip_while(|part| !is_host_bridge(part)).collect();
    (on_bus.len() > 1).then_some(on_bus)
}

/// Whether a folder is that of a host bridge, such as `pci0000:00`.
fn is_host_bridge(folder: &str) -> bool {
    let numbers = folder.strip_prefix("pci").and_then(|numbers| numbers.split_once(':'));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    numbers.is_some_and(|(domain, bus)| is_number(domain) && is_number(bus))
}

/// What the last folder is that both sit in.
fn meeting(sysfs: &Sysfs, last: Option<&String>) -> Meeting {
    let Some(last) = last else { return Meeting::Apart };
    match last.parse() {
        Ok(address) => {
            let kind = sysfs.config_space(address).and_then(|space| space.port_type());
            Meeting::Bridge { address, is_switch: kind == Some(PortType::Upstream) }
        }
        Err(_) => Meeting::HostBridge(last.clone()),
    }
}

#[cfg(test)]
mod tests;
