use tentpeg_driver::gpu::StandIn;

use super::*;
use crate::machine::Machine;

#[test]
fn the_way_and_what_is_in_each_better_one() {
    let rung = |path, obstacle| Rung { path, obstacle };
    let gdrdrv = Some(Obstacle::NoGdrdrv { errno: 2 });
    let ways = Ways::of(&[
        rung(GpuPath::DmaBufMmap, Some(Obstacle::NoDmaBuf)),
        rung(GpuPath::Gdrdrv, gdrdrv),
        rung(GpuPath::Iommufd, None),
        rung(GpuPath::Staged, None),
    ]);
    assert_eq!(ways.used, GpuPath::Iommufd);
    let reasons = ways.reasons().unwrap();
    assert!(
        reasons.contains("open kernel modules") && reasons.contains("; direct by gdrdrv: /dev/gdrdrv"),
        "{reasons}"
    );
    let best = Ways::of(&[rung(GpuPath::DmaBufMmap, None), rung(GpuPath::Gdrdrv, Some(Obstacle::NoRdma))]);
    assert_eq!((best.used, best.reasons()), (GpuPath::DmaBufMmap, None), "what is worse is nobody's reason");
}

#[test]
fn ways_are_tried_with_memory_of_the_gpu_and_what_translates() {
    let gpu: Arc<dyn Accelerator> = StandIn::new(2 << 20);
    let probe = Probe::new(&gpu, Some(4096)).unwrap();
    let type1 = probe.ways(Translation::Type1);
    assert_eq!(type1.used, GpuPath::Staged);
    assert!(matches!(type1.closed[0].1, Obstacle::BarFull { free: 4096, .. }), "{type1:?}");
    let iommufd = probe.ways(Translation::Iommufd);
    assert!(matches!(iommufd.closed[0].1, Obstacle::Translation { .. }), "{iommufd:?}");
    let small: Arc<dyn Accelerator> = StandIn::new(4096);
    assert!(matches!(Probe::new(&small, None), Err(ProbeError::Memory(GpuMemoryError::NoRoom { .. }))));
}

#[test]
fn nothing_translates_for_a_controller_without_an_iommu() {
    let machine = Machine::with_controllers();
    machine.file("sys/module/vfio_iommu_type1/parameters/dma_entry_limit", "65535\n");
    machine.file("dev/vfio/vfio", "");
    let sysfs = machine.sysfs();
    let of = |address: &str| translation_of(&sysfs, &sysfs.function(address.parse().unwrap()).unwrap());
    assert_eq!((of("0000:04:00.0"), of("0000:05:00.0")), (Translation::Type1, Translation::Other));
    assert_eq!(translation(&Machine::new().sysfs()), Translation::Other);
}
