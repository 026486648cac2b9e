//! The tier of real VFIO: the functions of a machine, as they are.

use std::io;
use std::sync::Arc;

use tentpeg_driver::bus::{PciAddress, Sysfs};
use tentpeg_driver::controller::{Controller, ControllerConfig};
use tentpeg_driver::vfio::{self, VfioDevice, VfioError, VfioFunction, Way};
use tentpeg_engine::EngineConfig;

use crate::device_tests::{Bench, Ending, EngineBench, Tier, Wanted};

/// Controllers that VFIO has. Each test opens one of them, and closes it again.
pub struct VfioTier {
    sysfs: Sysfs,
    way: Way,
    name: String,
    controllers: Vec<(PciAddress, Wanted)>,
}

impl VfioTier {
    /// A tier over controllers that are bound to `vfio-pci` and may be overwritten, and are opened by `way`. Each is opened
    /// once, to see what a test can want of it.
    ///
    /// # Errors
    /// [`Ending::Failed`] when one of them does not come up.
    pub fn new(sysfs: Sysfs, addresses: &[PciAddress], way: Way) -> Result<Self, Ending> {
        Self::named(format!("vfio, {way}"), sysfs, addresses, way)
    }

    /// As [`new`](Self::new), under this name.
    ///
    /// # Errors
    /// As of `new`.
    pub fn named(name: String, sysfs: Sysfs, addresses: &[PciAddress], way: Way) -> Result<Self, Ending> {
        let mut tier = Self { sysfs, way, name, controllers: Vec::new() };
        for &address in addresses {
            let bench = bench_of(open_function(&tier.sysfs, address, way)?)?;
            let (cap, identify) = (bench.controller.cap(), bench.controller.identify());
            let has = Wanted {
                lba_size: Some(bench.limits.lba_size() as u32),
                mdts: Some(identify.mdts),
                mqes: Some((cap.mqes().count() - 1) as u16),
                mpsmin: Some((cap.min_page_size().trailing_zeros() - 12) as u8),
                dstrd: Some((cap.doorbell_stride().trailing_zeros() - 2) as u8),
            };
            bench.controller.shutdown()?;
            tier.controllers.push((address, has));
        }
        Ok(tier)
    }

    /// Opens the first controller that has all that a test wants and is not open already, as one is in a test that has two.
    fn suitable(&self, wanted: Wanted) -> Result<Arc<VfioFunction>, Ending> {
        let suitable = self.controllers.iter().filter(|(_, has)| satisfies(has, &wanted));
        let none = Ending::Skipped(format!("none of {} controllers is as wanted: {wanted:?}", self.controllers.len()));
        let mut ending = none;
        for (address, _) in suitable {
            match vfio::open(&self.sysfs, &[*address], Some(self.way)) {
                Ok(devices) => return function_of(devices),
                Err(error) if is_busy(&error) => ending = error.into(),
                Err(error) => return Err(error.into()),
            }
        }
        Err(ending)
    }
}

/// The controller of a function, enabled.
pub(super) fn bench_of(function: Arc<VfioFunction>) -> Result<Bench, Ending> {
    Bench::new(Controller::enable(function, ControllerConfig::default())?, None)
}

/// Whether a group is refused because somebody has it.
fn is_busy(error: &VfioError) -> bool {
    matches!(error, VfioError::Open { source, .. } if source.kind() == io::ErrorKind::ResourceBusy)
}

/// Whether a controller has all that is wanted.
fn satisfies(has: &Wanted, wanted: &Wanted) -> bool {
    fn is<T: PartialEq>(has: Option<T>, wanted: Option<T>) -> bool {
        wanted.is_none() || has == wanted
    }
    is(has.lba_size, wanted.lba_size)
        && is(has.mdts, wanted.mdts)
        && is(has.mqes, wanted.mqes)
        && is(has.mpsmin, wanted.mpsmin)
        && is(has.dstrd, wanted.dstrd)
}

/// Opens one controller, in an address space of its own.
pub(crate) fn open_function(sysfs: &Sysfs, address: PciAddress, way: Way) -> Result<Arc<VfioFunction>, Ending> {
    function_of(vfio::open(sysfs, &[address], Some(way))?)
}

/// Opens two functions, in this order, into one address space.
pub(super) fn open_two(sysfs: &Sysfs, addresses: [PciAddress; 2], way: Way) -> Result<[VfioDevice; 2], Ending> {
    let devices = vfio::open(sysfs, &addresses, Some(way))?;
    devices.try_into().map_err(|_| Ending::Failed("two functions were opened as another number".to_owned()))
}

/// The controller that an opened device is, enabled.
pub(super) fn bench_on(device: VfioDevice) -> Result<Bench, Ending> {
    bench_of(Arc::new(VfioFunction::new(Arc::new(device))?))
}

fn function_of(devices: Vec<VfioDevice>) -> Result<Arc<VfioFunction>, Ending> {
    let device = devices.into_iter().next().ok_or_else(|| Ending::Failed("no device was opened".to_owned()))?;
    Ok(Arc::new(VfioFunction::new(Arc::new(device))?))
}

impl Tier for VfioTier {
    fn name(&self) -> &str {
        &self.name
    }

    fn controller(&self, wanted: Wanted) -> Result<Bench, Ending> {
        bench_of(self.suitable(wanted)?)
    }

    fn engine(&self, wanted: Wanted, config: EngineConfig) -> Result<EngineBench, Ending> {
        EngineBench::on_function(self.suitable(wanted)?, config, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_is_chosen_by_all_that_is_wanted() {
        let has = Wanted { lba_size: Some(512), mdts: Some(7), mqes: Some(2047), mpsmin: Some(0), dstrd: Some(0) };
        for (wanted, suits) in [
            (Wanted::default(), true),
            (Wanted { lba_size: Some(512), mdts: Some(7), ..Wanted::default() }, true),
            (Wanted { lba_size: Some(4096), mdts: Some(7), ..Wanted::default() }, false),
            (Wanted { mpsmin: Some(1), ..Wanted::default() }, false),
            (Wanted { dstrd: Some(1), ..Wanted::default() }, false),
            (Wanted { mqes: Some(1), ..Wanted::default() }, false),
        ] {
            assert_eq!(satisfies(&has, &wanted), suits, "{wanted:?}");
        }
    }
}
