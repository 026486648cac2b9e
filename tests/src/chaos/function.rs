//! What stands between the driver and the model: a clock of its own, and a bus that can be broken on purpose.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tentpeg_driver::bus::{BusError, Doorbell, Function};
use tentpeg_driver::dma::DmaSpace;
use tentpeg_driver::model::ModelFunction;

/// Virtual time that passes with each look of a wait.
const PAUSE: Duration = Duration::from_micros(200);
/// The most looks between two steps of the harness. A wait that takes more has no end.
const MOST_PAUSES: u64 = 2_000_000;

/// The model's function with virtual time: deadlines take as many turns of the model each time.
pub struct Watched {
    inner: Arc<ModelFunction>,
    start: Instant,
    nanoseconds: AtomicU64,
    pauses: AtomicU64,
    /// A deliberate mistake: taking the function out of its address space does nothing.
    cut_off_is_broken: AtomicBool,
}

impl Watched {
    /// Stands before `inner`; its time begins now.
    pub fn new(inner: Arc<ModelFunction>) -> Self {
        Self {
            inner,
            start: Instant::now(),
            nanoseconds: AtomicU64::new(0),
            pauses: AtomicU64::new(0),
            cut_off_is_broken: AtomicBool::new(false),
        }
    }

    pub(super) fn break_cut_off(&self) {
        self.cut_off_is_broken.store(true, Ordering::Relaxed);
    }

    /// Virtual time passes.
    pub fn pass(&self, time: Duration) {
        self.nanoseconds.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Virtual milliseconds since the beginning; they wrap.
    pub fn milliseconds(&self) -> u32 {
        (self.nanoseconds.load(Ordering::Relaxed) / 1_000_000) as u32
    }

    /// A step begins, which may look anew as often as a wait may.
    pub fn begin_step(&self) {
        self.pauses.store(0, Ordering::Relaxed);
    }
}

impl Function for Watched {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn read_u32(&self, offset: u64) -> u32 {
        self.inner.read_u32(offset)
    }

    fn write_u32(&self, offset: u64, value: u32) {
        self.inner.write_u32(offset, value);
    }

    fn doorbell(&self, offset: u64) -> Result<Box<dyn Doorbell>, BusError> {
        self.inner.doorbell(offset)
    }

    fn dma(&self) -> &Arc<DmaSpace> {
        self.inner.dma()
    }

    fn revoke_doorbells(&self) {
        self.inner.revoke_doorbells();
    }

    fn reset(&self) -> Result<(), BusError> {
        self.inner.reset()
    }

    fn disable_bus_mastering(&self) -> Result<(), BusError> {
        self.inner.disable_bus_mastering()
    }

    fn enable_bus_mastering(&self) -> Result<(), BusError> {
        self.inner.enable_bus_mastering()
    }

    fn cut_off(&self) {
        if !self.cut_off_is_broken.load(Ordering::Relaxed) {
            self.inner.cut_off();
        }
    }

    fn pause(&self) {
        self.pass(PAUSE);
        let pauses = self.pauses.fetch_add(1, Ordering::Relaxed);
        assert!(pauses < MOST_PAUSES, "a wait has no end: {pauses} looks since the last step");
        self.inner.pause();
    }

    fn now(&self) -> Instant {
        self.start + Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed))
    }
}
