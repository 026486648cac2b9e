//! Against a machine that is told what it can do.

use std::cell::RefCell;

use super::*;
use crate::gpu::device::WritesOrdering;
use crate::gpu::provider::{Allocation, AllocationKind};

/// A machine on which every direct way is open, until a test closes it.
struct Machine {
    info: GpuInfo,
    driver: CudaVersion,
    export: Result<(), CudaError>,
    map: Result<(), i32>,
    pin: Result<(), i32>,
    import: Result<(), i32>,
    gdrdrv: Result<Gdrdrv, i32>,
    exported: RefCell<Vec<(u64, u64)>>,
}

impl Machine {
    fn new() -> Self {
        let info = GpuInfo {
            ordinal: 0,
            name: "GPU".to_owned(),
            pci_address: "0000:01:00.0".to_owned(),
            memory: 1 << 30,
            multiprocessors: 1,
            compute_capability: (9, 0),
            writes_ordering: WritesOrdering::Owner,
            host_flush: true,
            rdma: true,
            dma_buf: true,
            dma_buf_mmap: Some(true),
        };
        let version = GdrdrvVersion { major: 2, minor: 5 };
        Self {
            info,
            driver: CudaVersion(13_030),
            export: Ok(()),
            map: Ok(()),
            pin: Ok(()),
            import: Ok(()),
            gdrdrv: Ok(Gdrdrv { version, persistent: Some(true) }),
            exported: RefCell::default(),
        }
    }
}

impl PathProbe for Machine {
    fn info(&self) -> &GpuInfo {
        &self.info
    }

    fn driver(&self) -> CudaVersion {
        self.driver
    }

    fn export(&self, address: u64, len: u64) -> Result<DmaBuf, CudaError> {
        self.export.clone()?;
        self.exported.borrow_mut().push((address, len));
        Ok(bar(len))
    }

    fn map(&self, dma_buf: DmaBuf, len: u64) -> Result<BarMapping, i32> {
        assert_eq!(len, GPU_PAGE);
        self.map?;
        BarMapping::of_dma_buf(dma_buf, len)
    }

    fn pin(&self, address: u64, len: u64) -> Result<BarMapping, i32> {
        assert_eq!((address, len), (ADDRESS - 0x1000, GPU_PAGE));
        self.pin?;
        BarMapping::of_dma_buf(bar(len), len)
    }

    fn import(&self, _: &DmaBuf, len: u64) -> Result<(), i32> {
        assert_eq!(len, GPU_PAGE);
        self.import
    }

    fn gdrdrv(&self) -> Result<Gdrdrv, i32> {
        self.gdrdrv
    }

    fn bar1_free(&self) -> Option<u64> {
        None
    }
}

/// A file in the place of BAR1.
fn bar(len: u64) -> DmaBuf {
    let file = tempfile::tempfile().unwrap();
    file.set_len(len).unwrap();
    DmaBuf::new(file.into())
}

/// What closes a way.
type Close = Box<dyn Fn(&mut Machine)>;

const ADDRESS: u64 = 0x7f00_0001_1000;

fn placement(rdma_capable: bool) -> Placement {
    let allocation =
        Allocation { base: ADDRESS - 0x1000, len: 1 << 20, buffer_id: 1, kind: AllocationKind::Plain, rdma_capable };
    Placement { address: ADDRESS, len: 0x2_0000, device: 0, allocations: vec![allocation] }
}

fn wanted(placement: &Placement, translation: Translation, bar1_free: Option<u64>) -> Wanted<'_> {
    Wanted { placement, translation, bar1_free, bar1_left: None, visible_to: WritesOrdering::Owner }
}

fn obstacles(machine: &Machine, translation: Translation) -> [Option<Obstacle>; 4] {
    climb(machine, wanted(&placement(true), translation, Some(0x3_0000))).map(|rung| rung.obstacle)
}

#[test]
fn what_is_free_depends_on_what_translates() {
    let machine = Machine::new();
    let other = |have, need| Some(Obstacle::Translation { have, need });
    let (type1, iommufd) = (Translation::Type1, Translation::Iommufd);
    assert_eq!(obstacles(&machine, type1), [None, None, other(type1, iommufd), None]);
    assert_eq!(obstacles(&machine, iommufd), [other(iommufd, type1), other(iommufd, type1), None, None]);
    let process = Translation::Process;
    assert_eq!(obstacles(&machine, process), [None, None, other(process, iommufd), None]);
    assert_eq!(obstacles(&machine, Translation::Other).iter().filter(|rung| rung.is_none()).count(), 1);
    // The GPU page that the memory begins in, whole.
    assert_eq!(machine.exported.borrow().as_slice(), [(ADDRESS - 0x1000, GPU_PAGE); 3]);
}

#[test]
fn each_obstacle_is_named_and_staging_is_always_left() {
    let version = |major, minor| GdrdrvVersion { major, minor };
    let refused = CudaError { call: "cuMemGetHandleForAddressRange", code: 1, name: "INVALID".to_owned() };
    let cases: Vec<(Close, usize, Obstacle)> = vec![
        (Box::new(|machine| machine.info.rdma = false), 0, Obstacle::NoRdma),
        (Box::new(|machine| machine.info.rdma = false), 1, Obstacle::NoRdma),
        (Box::new(|machine| machine.info.dma_buf = false), 0, Obstacle::NoDmaBuf),
        (
            Box::new(|machine| (machine.driver, machine.info.dma_buf_mmap) = (CudaVersion(13_000), None)),
            0,
            Obstacle::NoMmap { driver: CudaVersion(13_000) },
        ),
        (
            Box::new(|machine| machine.info.dma_buf_mmap = Some(false)),
            0,
            Obstacle::NoMmap { driver: CudaVersion(13_030) },
        ),
        (
            {
                let refused = refused.clone();
                Box::new(move |machine| machine.export = Err(refused.clone()))
            },
            0,
            Obstacle::Export(refused),
        ),
        (Box::new(|machine| machine.map = Err(524)), 0, Obstacle::Mmap { errno: 524 }),
        (
            Box::new(|machine| {
                (machine.info.writes_ordering, machine.info.host_flush) = (WritesOrdering::Nobody, false);
            }),
            1,
            Obstacle::NoFlush { have: WritesOrdering::Nobody, need: WritesOrdering::Owner },
        ),
        (Box::new(|machine| machine.pin = Err(libc::ENOMEM)), 1, Obstacle::Pin { errno: libc::ENOMEM }),
        (Box::new(|machine| machine.gdrdrv = Err(libc::ENOENT)), 1, Obstacle::NoGdrdrv { errno: libc::ENOENT }),
        (
            Box::new(move |machine| machine.gdrdrv = Ok(Gdrdrv { version: version(2, 3), persistent: None })),
            1,
            Obstacle::GdrdrvTooOld { have: version(2, 3) },
        ),
        (
            Box::new(move |machine| machine.gdrdrv = Ok(Gdrdrv { version: version(2, 5), persistent: Some(false) })),
            1,
            Obstacle::GdrdrvNotPersistent,
        ),
    ];
    for (close, rung, expected) in cases {
        let mut machine = Machine::new();
        close(&mut machine);
        let found = obstacles(&machine, Translation::Type1);
        assert_eq!(found[rung], Some(expected));
        assert_eq!(found[3], None);
    }
    // Where nobody needs to see it ordered, or the host can flush, nothing is in the way.
    let mut machine = Machine::new();
    machine.info.writes_ordering = WritesOrdering::Nobody;
    assert_eq!(obstacles(&machine, Translation::Type1)[0], None);
    machine.import = Err(libc::EINVAL);
    assert_eq!(obstacles(&machine, Translation::Iommufd)[2], Some(Obstacle::Import { errno: libc::EINVAL }));
}

#[test]
fn memory_that_is_closed_to_others_and_a_full_bar_are_told_before_anything_is_tried() {
    let machine = Machine::new();
    let closed = placement(false);
    assert_eq!(climb(&machine, wanted(&closed, Translation::Type1, None))[0].obstacle, Some(Obstacle::NotRdmaCapable));
    let placement = placement(true);
    // 128 KiB from the middle of a GPU page are three of them.
    let full = wanted(&placement, Translation::Type1, Some(0x2_FFFF));
    let obstacle = climb(&machine, full)[1].obstacle.clone();
    assert_eq!(obstacle, Some(Obstacle::BarFull { wanted: 0x3_0000, free: 0x2_FFFF }));
    // The allocation begins in the middle of a page of the GPU, or ends there.
    let Placement { address, len, allocations, device } = placement;
    let [allocation] = allocations[..] else { panic!("one allocation") };
    for (base, end) in [(address, address + (1 << 20)), (address - 0x1000, address + len)] {
        let part =
            Placement { address, len, device, allocations: vec![Allocation { base, len: end - base, ..allocation }] };
        let obstacle = climb(&machine, wanted(&part, Translation::Type1, None))[0].obstacle.clone();
        assert_eq!(obstacle, Some(Obstacle::Pages(PlaceError::Pages { address, len, page: GPU_PAGE })));
    }
    assert!(machine.exported.borrow().is_empty());
}

#[test]
fn the_best_of_the_allowed_ways_is_chosen_and_never_another() {
    let mut machine = Machine::new();
    let placement = placement(true);
    let wanted = wanted(&placement, Translation::Type1, None);
    let choice = |machine: &Machine, allowed: &str| choose(&climb(machine, wanted), allowed.parse().unwrap());
    assert_eq!(choice(&machine, "auto"), Ok(GpuPath::DmaBufMmap));
    assert_eq!(choice(&machine, "gdrdrv"), Ok(GpuPath::Gdrdrv));
    assert_eq!(choice(&machine, "staged"), Ok(GpuPath::Staged));
    machine.info.dma_buf_mmap = None;
    assert_eq!(choice(&machine, "direct"), Ok(GpuPath::Gdrdrv));
    machine.gdrdrv = Err(libc::ENOENT);
    assert_eq!(choice(&machine, "auto"), Ok(GpuPath::Staged));
    let error = choice(&machine, "direct").unwrap_err();
    assert_eq!(error.rungs.len(), 3);
    let message = error.to_string();
    for part in
        ["direct by dma-buf mmap: the driver", "direct by gdrdrv: /dev/gdrdrv", "direct by iommufd: the device's"]
    {
        assert!(message.contains(part), "{message}");
    }
    let nothing = choose(&climb(&machine, wanted), GpuPaths::empty()).unwrap_err();
    assert!(nothing.to_string().ends_with("none is allowed"));
    assert!("best".parse::<GpuPaths>().unwrap_err().to_string().contains("must be auto"));
}
