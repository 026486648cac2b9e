//! What stands between this machine's GPUs and its controllers: the driver, BAR1, each way and what is in it, where the two sit
//! on the bus, and what the ports between them do.

use std::sync::Arc;

use tentpeg_driver::bus::{PciFunction, Sysfs};
use tentpeg_driver::gpu::{Accelerator, Cuda, Gpu, GpuManagement, management};

use super::Finding;
use crate::gpu::{Pair, Probe, Ways, translation};
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
    let remedy = "without it memory of the GPU cannot be used; memory of the host can";
    let (count, cuda) = match Cuda::load().and_then(|cuda| Ok((cuda.device_count()?, cuda))) {
        Ok(known) => known,
        Err(error) => return vec![Finding::warning("CUDA", error.to_string(), remedy)],
    };
    let controllers = sysfs.nvme_functions().unwrap_or_default();
    let of_gpu = |gpu: Arc<Gpu>| {
        let known = management(&gpu.info().pci_address);
        let gpu: Arc<dyn Accelerator> = gpu;
        of_gpu(sysfs, &gpu, known.as_ref(), &controllers)
    };
    let found = (0..count).flat_map(|ordinal| match Gpu::open(&cuda, ordinal) {
        Ok(gpu) => of_gpu(gpu),
        Err(error) => vec![Finding::warning(&format!("cuda:{ordinal}"), error.to_string(), remedy)],
    });
    found.collect()
}

fn of_gpu(
    sysfs: &Sysfs,
    gpu: &Arc<dyn Accelerator>,
    known: Option<&GpuManagement>,
    controllers: &[PciFunction],
) -> Vec<Finding> {
    let info = gpu.info();
    let check = format!("cuda:{}", info.ordinal);
    let mut found = format!("{}, {}, CUDA {}", info.name, info.pci_address, gpu.driver());
    if let Some(known) = known {
        let (free, total) = (About(known.bar1_free), About(known.bar1_total));
        found += &format!(", driver {}, BAR1 {total} of which {free} are free", known.driver);
    }
    let mut findings = vec![Finding::good(&check, found)];
    findings.push(match Probe::new(gpu, known.map(|known| known.bar1_free)) {
        Ok(probe) => way(&check, &probe.ways(translation(sysfs))),
        Err(reason) => Finding::warning(&check, reason.to_string(), "look at nvidia-smi"),
    });
    findings.extend(controllers.iter().flat_map(|controller| {
        let pair = Pair::of(sysfs, &info.pci_address, controller);
        of_pair(&format!("{check} {}", controller.address), &pair)
    }));
    findings
}

/// The way that would be used, and why each better one cannot.
fn way(check: &str, ways: &Ways) -> Finding {
    let found = format!("bytes of a drive would go {}", ways.used);
    match ways.reasons() {
        None => Finding::good(check, found),
        Some(reasons) => Finding::warning(check, found, reasons),
    }
}

/// Where GPU and controller sit, and what the ports between them do.
fn of_pair(check: &str, pair: &Pair) -> Vec<Finding> {
    let mut findings = vec![Finding::good(check, pair.place())];
    findings.extend(pair.access_control().map(|told| {
        let found = format!("ACS: {}", told.text);
        match told.remedy {
            None => Finding::good(check, found),
            Some(remedy) => Finding::warning(check, found, remedy),
        }
    }));
    findings
}

#[cfg(test)]
mod tests {
    use tentpeg_driver::gpu::StandIn;

    use super::*;
    use crate::doctor::Level;
    use crate::machine::Machine;

    #[test]
    fn a_gpu_and_the_controllers_around_it() {
        let machine = Machine::with_gpu_below_a_switch();
        let gpu: Arc<dyn Accelerator> = StandIn::new(1 << 30);
        let known = GpuManagement { driver: "580.159.04".to_owned(), bar1_total: 1 << 38, bar1_free: 1 << 37 };
        let controllers = machine.sysfs().nvme_functions().unwrap();
        let findings = of_gpu(&machine.sysfs(), &gpu, Some(&known), &controllers);
        let lines: Vec<_> =
            findings.iter().map(|finding| (finding.level, finding.check.as_str(), finding.found.as_str())).collect();
        let expected = "stand-in, 0000:00:00.0, CUDA 0.0, driver 580.159.04, BAR1 256 GiB of which 128 GiB are free";
        assert_eq!(lines[0], (Level::Good, "cuda:0", expected));
        assert_eq!(lines[1], (Level::Warning, "cuda:0", "bytes of a drive would go staged"));
        let (near, far) = ("cuda:0 0000:04:00.0", "cuda:0 0000:05:00.0");
        assert_eq!([lines[2].1, lines[3].1, lines[4].1, lines[5].1], [near, near, far, far]);
        let place =
            "below one bridge (0000:01:00.0), 1 and 1 bridges up; NUMA node 0; one IOMMU group (7), so not isolated";
        assert_eq!(lines[2], (Level::Good, near, place));
        assert!(lines[3].0 == Level::Warning && lines[3].2.starts_with("ACS: GPU's port 0000:02:00.0 "), "{lines:?}");
        assert!(lines[5].0 == Level::Good && lines[5].2.ends_with("the IOMMU sees requests of one for the other"));
        assert_eq!(lines.len(), 6);
    }

    #[test]
    fn the_best_way_needs_no_remedy_and_memory_that_cannot_be_had_does() {
        use tentpeg_driver::gpu::GpuPath;
        let best = way("cuda:0", &Ways { used: GpuPath::DmaBufMmap, closed: Vec::new() });
        assert_eq!((best.level, best.remedy), (Level::Good, None));
        let small: Arc<dyn Accelerator> = StandIn::new(4096);
        let findings = of_gpu(&Machine::new().sysfs(), &small, None, &[]);
        assert_eq!(findings[1].level, Level::Warning);
        assert_eq!(findings[1].remedy.as_deref(), Some("look at nvidia-smi"));
    }

    #[test]
    fn a_machine_without_a_gpu_has_nothing_to_tell() {
        assert_eq!(findings(&Machine::with_controllers().sysfs()), []);
    }
}
