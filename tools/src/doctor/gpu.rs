//! What stands between this machine's GPUs and its controllers: the driver, BAR1, each way and what is in it, and where the
//! two sit on the bus.

use std::fs;
use std::sync::Arc;

use tentpeg_driver::bus::{PciFunction, Sysfs};
use tentpeg_driver::dma::AcceleratorMemory;
use tentpeg_driver::gpu::{
    Accelerator, Cuda, Gpu, GpuPath, PathProbe, Rung, Translation, Wanted, climb, locate, management,
};
use tentpeg_driver::vfio::{self, Way};

use super::Finding;
use crate::units::About;

/// NVIDIA's vendor number, and the base class of displays and accelerators.
const NVIDIA: u16 = 0x10DE;
const DISPLAY: u32 = 0x03;

/// What is found of GPUs; nothing on a machine that has none.
pub(super) fn findings(sysfs: &Sysfs) -> Vec<Finding> {
    let functions = sysfs.functions().unwrap_or_default();
    let is_gpu = |function: &&PciFunction| {
        function.vendor == Some(NVIDIA) && function.class.is_some_and(|class| class >> 16 == DISPLAY)
    };
    if !functions.iter().any(|function| is_gpu(&function)) {
        return Vec::new();
    }
    let gpus = match Cuda::load().and_then(|cuda| {
        let all = (0..cuda.device_count()?).map(|ordinal| Gpu::open(&cuda, ordinal));
        all.collect::<Result<Vec<_>, _>>()
    }) {
        Ok(gpus) => gpus,
        Err(error) => {
            let remedy = "without it memory of the GPU cannot be used; memory of the host can";
            return vec![Finding::warning("CUDA", error.to_string(), remedy)];
        }
    };
    let controllers = sysfs.nvme_functions().unwrap_or_default();
    let translation = translation(sysfs);
    gpus.iter().flat_map(|gpu| of_gpu(sysfs, gpu, translation, &controllers)).collect()
}

/// What would translate a controller's addresses here.
fn translation(sysfs: &Sysfs) -> Translation {
    match vfio::ways(sysfs).first() {
        Some(Way::Type1) => Translation::Type1,
        Some(Way::Iommufd) => Translation::Iommufd,
        None => Translation::Other,
    }
}

fn of_gpu(sysfs: &Sysfs, gpu: &Arc<Gpu>, translation: Translation, controllers: &[PciFunction]) -> Vec<Finding> {
    let info = gpu.info().clone();
    let check = format!("cuda:{}", info.ordinal);
    let known = management(&info.pci_address);
    let mut found = format!("{}, {}, CUDA {}", info.name, info.pci_address, gpu.cuda().version());
    if let Some(known) = &known {
        let (free, total) = (About(known.bar1_free), About(known.bar1_total));
        found += &format!(", driver {}, BAR1 {total} of which {free} are free", known.driver);
    }
    let mut findings = vec![Finding::good(&check, found)];
    match rungs(gpu, translation, known.map(|known| known.bar1_free)) {
        Ok(rungs) => findings.extend(ways(&check, &rungs)),
        Err(reason) => findings.push(Finding::warning(&check, reason, "look at nvidia-smi")),
    }
    findings.extend(controllers.iter().map(|controller| {
        let address = controller.address.to_string();
        let found = Neighbourhood::of(sysfs, &info.pci_address, &address).text();
        Finding::good(&format!("{check} {address}"), found)
    }));
    findings
}

/// Tries every way with memory of the GPU.
fn rungs(gpu: &Arc<Gpu>, translation: Translation, bar1_free: Option<u64>) -> Result<[Rung; 4], String> {
    let memory = Accelerator::allocate(Arc::clone(gpu), 1 << 20).map_err(|error| error.to_string())?;
    let placement = locate(&**gpu, gpu.info().ordinal, memory.address(), memory.len());
    let placement = placement.map_err(|error| error.to_string())?;
    let probe: &dyn PathProbe = &**gpu;
    Ok(climb(probe, Wanted { placement: &placement, translation, bar1_free }))
}

/// The way that would be used, and why each better one cannot.
fn ways(check: &str, rungs: &[Rung]) -> Vec<Finding> {
    let better = rungs.iter().take_while(|rung| rung.obstacle.is_some());
    let reasons: Vec<_> =
        better.filter_map(|rung| Some(format!("{}: {}", rung.path, rung.obstacle.as_ref()?))).collect();
    let used = rungs.iter().find(|rung| rung.obstacle.is_none()).map_or(GpuPath::Staged, |rung| rung.path);
    let found = format!("bytes of a drive would go {used}");
    vec![match reasons.is_empty() {
        true => Finding::good(check, found),
        false => Finding::warning(check, found, reasons.join("; ")),
    }]
}

/// Where two functions sit.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Neighbourhood {
    /// Bridges from each up to what they have in common, that not among them.
    hops: Option<(usize, usize)>,
    /// What they have in common: a bridge, a host bridge, or nothing.
    common: Option<String>,
    nodes: (Option<String>, Option<String>),
    groups: (Option<String>, Option<String>),
}

impl Neighbourhood {
    /// By the folders of sysfs, whose nesting is that of the bus.
    fn of(sysfs: &Sysfs, one: &str, other: &str) -> Self {
        let folder = |address: &str| fs::canonicalize(sysfs.path(&format!("/sys/bus/pci/devices/{address}"))).ok();
        let parts = |address: &str| -> Option<Vec<String>> {
            let folder = folder(address)?;
            let parts = folder.components().map(|part| part.as_os_str().to_string_lossy().into_owned());
            let on_bus: Vec<_> = parts.skip_while(|part| !part.starts_with("pci")).collect();
            (!on_bus.is_empty()).then_some(on_bus)
        };
        let (mut hops, mut common) = (None, None);
        if let (Some(first), Some(second)) = (parts(one), parts(other)) {
            let shared = first.iter().zip(&second).take_while(|(first, second)| first == second).count();
            common = shared.checked_sub(1).and_then(|last| first.get(last).cloned());
            let own = |parts: &Vec<String>| parts.len().saturating_sub(shared + 1);
            hops = common.is_some().then(|| (own(&first), own(&second)));
        }
        let text = |address: &str, name: &str| {
            let text = fs::read_to_string(sysfs.path(&format!("/sys/bus/pci/devices/{address}/{name}"))).ok();
            text.map(|text| text.trim().to_owned()).filter(|text| text != "-1")
        };
        let group = |address: &str| {
            let link = fs::read_link(sysfs.path(&format!("/sys/bus/pci/devices/{address}/iommu_group"))).ok()?;
            Some(link.file_name()?.to_string_lossy().into_owned())
        };
        Self {
            hops,
            common,
            nodes: (text(one, "numa_node"), text(other, "numa_node")),
            groups: (group(one), group(other)),
        }
    }

    fn text(&self) -> String {
        let place = match (&self.common, self.hops) {
            (Some(bridge), _) if bridge.starts_with("pci") => {
                format!("under one host bridge ({bridge}), by root ports of their own: bytes pass the processor")
            }
            (Some(bridge), Some((one, other))) => {
                format!("below one bridge ({bridge}), {one} and {other} bridges up: bytes need not pass the processor")
            }
            _ => "under different host bridges: bytes pass the processor, and perhaps the link between sockets"
                .to_owned(),
        };
        let nodes = match &self.nodes {
            (Some(one), Some(other)) if one == other => format!("; NUMA node {one}"),
            (Some(one), Some(other)) => format!("; NUMA nodes {one} and {other}"),
            _ => String::new(),
        };
        let groups = match &self.groups {
            (Some(one), Some(other)) if one == other => format!("; one IOMMU group ({one}), so not isolated by ACS"),
            (Some(one), Some(other)) => format!("; IOMMU groups {one} and {other}"),
            _ => "; no IOMMU group".to_owned(),
        };
        format!("{place}{nodes}{groups}")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tentpeg_driver::gpu::Obstacle;

    use super::*;
    use crate::machine::Machine;

    /// A function at its place on the bus, by the folders above it.
    fn place(machine: &Machine, folders: &str, address: &str, group: u32) {
        let folder = format!("sys/devices/{folders}/{address}");
        machine.file(&format!("{folder}/numa_node"), "0\n");
        let sysfs = machine.sysfs();
        symlink(format!("../../../kernel/iommu_groups/{group}"), sysfs.path(&format!("{folder}/iommu_group"))).unwrap();
        symlink(
            format!("../../../devices/{folders}/{address}"),
            sysfs.path(&format!("/sys/bus/pci/devices/{address}")),
        )
        .unwrap();
    }

    #[test]
    fn where_gpu_and_controller_sit_is_told() {
        let machine = Machine::new();
        let switch = "pci0000:00/0000:00:01.0/0000:01:00.0";
        place(&machine, &format!("{switch}/0000:02:00.0"), "0000:03:00.0", 7);
        place(&machine, &format!("{switch}/0000:02:01.0"), "0000:04:00.0", 8);
        place(&machine, "pci0000:00/0000:00:02.0", "0000:05:00.0", 7);
        place(&machine, "pci0000:80/0000:80:01.0", "0000:81:00.0", 9);
        let text = |other| Neighbourhood::of(&machine.sysfs(), "0000:03:00.0", other).text();
        let near = text("0000:04:00.0");
        assert!(near.starts_with("below one bridge (0000:01:00.0), 1 and 1 bridges up"), "{near}");
        assert!(near.ends_with("; NUMA node 0; IOMMU groups 7 and 8"), "{near}");
        let far = text("0000:05:00.0");
        assert!(far.starts_with("under one host bridge (pci0000:00), by root ports of their own"), "{far}");
        assert!(far.ends_with("one IOMMU group (7), so not isolated by ACS"), "{far}");
        assert!(text("0000:81:00.0").starts_with("under different host bridges"));
    }

    #[test]
    fn the_way_and_what_is_in_each_better_one_are_told() {
        let rung = |path, obstacle| Rung { path, obstacle };
        let gdrdrv = Some(Obstacle::NoGdrdrv { errno: 2 });
        let found = ways(
            "cuda:0",
            &[
                rung(GpuPath::DmaBufMmap, Some(Obstacle::NoDmaBuf)),
                rung(GpuPath::Gdrdrv, gdrdrv),
                rung(GpuPath::Staged, None),
            ],
        );
        assert_eq!(found[0].found, "bytes of a drive would go staged");
        let remedy = found[0].remedy.as_deref().unwrap();
        assert!(
            remedy.contains("open kernel modules") && remedy.contains("; direct by gdrdrv: /dev/gdrdrv"),
            "{remedy}"
        );
        assert_eq!(ways("cuda:0", &[rung(GpuPath::DmaBufMmap, None)])[0].remedy, None);
    }

    #[test]
    fn a_machine_without_a_gpu_has_nothing_to_tell() {
        assert_eq!(findings(&Machine::with_controllers().sysfs()), []);
    }
}
