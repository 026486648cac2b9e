//! An engine: devices, a lane for each, segments over them, and the memory that requests can name.

mod device;
mod memory;
mod proof;
mod statistics;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use crossbeam_queue::ArrayQueue;
use tentpeg_driver::controller::{ControllerConfig, ControllerError, RecoveryCounters};
use tentpeg_driver::dma::{Access, DmaSpace, HostMemory, Region};
use tentpeg_driver::gpu::GpuProducer;
use tentpeg_driver::model::{Faults, Model, ModelCounters, Violation};
use tentpeg_driver::spec::identify::Oncs;
use tentpeg_driver::spec::log::SmartLog;
use thiserror::Error;

pub use device::EngineDevice;

use crate::admission::{Plain, RequestError, admit, admit_flush, admit_range};
use crate::batch::{Batch, BatchOptions, SubmitAfterError, SubmitError};
use crate::blocks::write_zeroes;
use crate::counters::{EngineCounters, SharedCounters};
use crate::device::{Device, DeviceInfo, Held, OpenError, SharedDevice, lock};
use crate::gpu::{EngineGpu, GpuOptions};
use crate::lane::{
    Alarm, Bell, Closing, Inbox, Inquiries, Lane, LaneOptions, LaneThread, Port, PortParts, deal, give_up_inbox,
};
use crate::memory::{MemoryError, Registered};
use crate::opening::{self, DeviceSource, NotOpened, OpenOptions};
use crate::ownership::TakenOver;
use crate::planning::Ground;
use crate::planning::spread::{Means, Zeroes};
use crate::progress::Progress;
use crate::segment::{self, BlockExtent, DeviceTraits, Segment, SegmentLayout};
use crate::staging::{self, StagingCell, StagingMemory};
use crate::statistics::{PortStatistics, Recorder};
use crate::task::{Operation, Transfer, Work};
use crate::{Request, SegmentId};

/// The most batches that can live at a time, whatever is configured.
const MAX_BATCHES: usize = 1 << 16;
/// Bytes of zeroes that are kept for a device without Write Zeroes.
const ZEROES: usize = 64 << 10;

/// Who turns an engine's lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneMode {
    /// Threads of the engine's own, as [`LaneOptions`] say; without a word one for each device.
    Thread,
    /// The caller, by [`Lane::turn`], which turns all devices one after the other; no thread is started, and models take
    /// their turns there too.
    CallerDriven,
}

/// How to run an engine.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Entries of each device's queues; fewer where the controller has fewer. One command fewer can be in flight.
    pub queue_entries: u32,
    /// Batches that can live at a time: at least 1, and 65,536 where more are asked for.
    pub max_batches: usize,
    /// How long closing waits for commands in flight before it stops a controller.
    pub drain_timeout: Duration,
    /// How to drive controllers: their deadlines, and when recovery begins.
    pub controller: ControllerConfig,
    /// How lanes with threads are run.
    pub lanes: LaneOptions,
    /// Commands that take so long, or longer, are told: as events of the target `tentpeg::slow` (`tracing`), and in
    /// [`Statistics`](crate::statistics::Statistics); a few a second. None are without.
    pub slow_request: Option<Duration>,
    /// The GPU whose memory requests can name. Models are opened so that they reach it.
    pub gpu: Option<GpuOptions>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            queue_entries: 256,
            max_batches: 4096,
            drain_timeout: Duration::from_secs(10),
            controller: ControllerConfig::default(),
            lanes: LaneOptions::default(),
            slow_request: None,
            gpu: None,
        }
    }
}

/// More batches than the engine was configured for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{live} batches live already, as many as the engine was configured for (max_batches): drop some")]
pub struct TooManyBatches {
    /// Batches that live.
    pub live: usize,
}

/// A device of an open engine, and what belongs to it.
struct Opened {
    device: SharedDevice,
    info: DeviceInfo,
    inbox: Inbox,
    bell: Arc<Bell>,
    inquiries: Arc<Inquiries>,
    counters: Arc<SharedCounters>,
    staging: StagingCell,
    statistics: Arc<PortStatistics>,
    /// Tells a lane that was not given back.
    closing: Arc<Closing>,
    /// What its pair had done, and a model had seen, when it was opened.
    before: (EngineCounters, ModelCounters),
    /// Who has taken it over, once somebody has.
    taken_over: Arc<OnceLock<TakenOver>>,
    /// Where its label lets proofs of it write.
    scratch: Option<BlockExtent>,
}

/// Open devices with their lanes.
///
/// Closing an engine, by [`close`](Self::close) or by dropping it, gives up what is not issued, waits for what is,
/// and shuts the controllers down; every task has ended then.
pub struct Engine {
    devices: Vec<Opened>,
    space: Arc<DmaSpace>,
    gpu: Option<EngineGpu>,
    lanes: Vec<LaneThread>,
    segments: Arc<[Segment]>,
    not_opened: Vec<NotOpened>,
    registered: Arc<ArcSwap<Registered>>,
    /// Held while the set of registered memory changes.
    registering: Mutex<()>,
    /// Held while memory is unregistered, and while a GPU's is registered.
    unregistering: Mutex<()>,
    live_batches: Arc<AtomicUsize>,
    max_batches: usize,
    progress: Arc<Progress>,
    drain_timeout: Duration,
}

impl Engine {
    /// Opens the one device that `uri` names, with a lane in a thread of its own, and the segments of its label; where it
    /// has none, and nothing foreign, its whole as one segment. It becomes this node's, if it may be written. For several
    /// devices, for reading only, and for taking a device over see [`open_devices`](Self::open_devices).
    ///
    /// # Errors
    /// [`OpenError`]; nothing is left open, and no file is created, then.
    pub fn open(uri: &str, config: EngineConfig) -> Result<Self, OpenError> {
        let options = OpenOptions { config, ..OpenOptions::default() };
        Ok(opening::open(vec![uri.into()], options)?.0)
    }

    /// Opens the one device that `uri` names, with a lane that the caller drives: nothing moves but in its
    /// [`turn`](Lane::turn). Give the lane back to [`close_with`](Self::close_with).
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_caller_driven(uri: &str, config: EngineConfig) -> Result<(Self, Lane), OpenError> {
        let options = OpenOptions { config, lanes: LaneMode::CallerDriven, ..OpenOptions::default() };
        let (engine, lane) = opening::open(vec![uri.into()], options)?;
        Ok((engine, lane.unwrap_or_else(|| Lane::new(Vec::new()))))
    }

    /// Opens devices, with the segments that their labels have, and gives the lane, where the caller is to drive it.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_devices<S: Into<DeviceSource>>(
        devices: impl IntoIterator<Item = S>,
        options: OpenOptions,
    ) -> Result<(Self, Option<Lane>), OpenError> {
        opening::open(devices.into_iter().map(Into::into).collect(), options)
    }

    /// Makes an engine of devices that are open.
    pub(crate) fn start(
        mut opened: Vec<Device>,
        layouts: Vec<SegmentLayout>,
        not_opened: Vec<NotOpened>,
        mode: LaneMode,
        config: EngineConfig,
    ) -> Result<(Self, Option<Lane>), OpenError> {
        let threads = config.lanes.threads(mode, opened.len())?;
        let traits: Vec<DeviceTraits> = opened.iter().map(Device::traits).collect();
        let segments: Arc<[Segment]> = match segment::open_all(layouts, &traits) {
            Ok(segments) => segments.into(),
            Err(error) => {
                for device in &mut opened {
                    // The error is what these segments are.
                    let _ = device.release();
                }
                return Err(error.into());
            }
        };
        let max_batches = config.max_batches.clamp(1, MAX_BATCHES);
        // A layout names a device, so there is one.
        let Some(space) = opened.first().map(|device| Arc::clone(device.space())) else {
            return Err(segment::LayoutError::NoDevice { segment: String::new(), device: 0, devices: 0 }.into());
        };
        let gpu = config.gpu.map(|options| {
            let moved = opened.iter().all(|device| device.info().has_mover);
            EngineGpu::new(options, moved, space.translation())
        });
        let stager = gpu.as_ref().and_then(EngineGpu::stager);
        let registered = Arc::<ArcSwap<Registered>>::default();
        let unaligned_reads = segments.iter().any(|segment| segment.layout.unaligned_reads);
        let alarms: Vec<Arc<Alarm>> =
            (0..threads).map(|_| Alarm::new()).collect::<Result<_, _>>().map_err(OpenError::Thread)?;
        let (mut devices, mut ports) = (Vec::new(), Vec::new());
        for (lane, device) in (0..).zip(opened) {
            let scratch = device.scratch();
            let (info, held, (pair, interrupt)) = device.into_parts();
            let failed = |source| OpenError::Memory { device: info.name.clone(), source };
            let (means, zeroes) = means(&info, &held).map_err(failed)?;
            let volatile = info.controller.vwc.present();
            let ground = Ground { lane, nsid: info.nsid, limits: info.limits, volatile };
            let staging = StagingCell::default();
            if unaligned_reads {
                // It is empty.
                let _ = staging.set(StagingMemory::new(&space, &info.limits, stager).map_err(failed)?);
            }
            let mut shared = Opened {
                inbox: Arc::new(ArrayQueue::new(max_batches)),
                // As the ports are dealt out below.
                bell: Bell::new(usize::from(lane).checked_rem(threads).map(|lane| Arc::clone(&alarms[lane]))),
                inquiries: Inquiries::open(),
                counters: Arc::default(),
                staging,
                statistics: PortStatistics::new(segments.len()),
                closing: Arc::default(),
                taken_over: Arc::default(),
                before: (EngineCounters::default(), held.model.as_ref().map(Model::counters).unwrap_or_default()),
                device: SharedDevice::default(),
                info: info.clone(),
                scratch,
            };
            shared.counters.publish(pair.counters(), pair.anomalies().total());
            shared.before.0 = shared.counters.read();
            let place = (info.name.clone(), held.clock.function().numa_node());
            let parts = PortParts {
                pair,
                ground,
                means,
                zeroes,
                clock: held.clock.clone(),
                device: Arc::clone(&shared.device),
                inbox: Arc::clone(&shared.inbox),
                bell: Arc::clone(&shared.bell),
                interrupt,
                inquiries: Arc::clone(&shared.inquiries),
                counters: Arc::clone(&shared.counters),
                recorder: Recorder::new(Arc::clone(&shared.statistics), segments.len(), config.slow_request),
                closing: Arc::clone(&shared.closing),
                taken_over: Arc::clone(&shared.taken_over),
                name: info.name.clone(),
                segments: Arc::clone(&segments),
                registered: Arc::clone(&registered),
                staging: Arc::clone(&shared.staging),
                visibility: gpu.as_ref().and_then(EngineGpu::visibility).cloned(),
            };
            let port = config.lanes.near(usize::from(lane), place, || Port::new(parts))?.map_err(failed)?;
            *lock(&shared.device) = Some(held);
            devices.push(shared);
            ports.push(port);
        }
        let mut engine = Self {
            devices,
            space,
            gpu,
            lanes: Vec::new(),
            segments,
            not_opened,
            registered,
            registering: Mutex::default(),
            unregistering: Mutex::default(),
            live_batches: Arc::default(),
            max_batches,
            progress: Arc::default(),
            drain_timeout: config.drain_timeout,
        };
        let lane = match mode {
            LaneMode::CallerDriven => Some(Lane::new(ports)),
            LaneMode::Thread => {
                let LaneOptions { idle, .. } = config.lanes;
                for (lane, (ports, alarm)) in deal(ports, threads).into_iter().zip(alarms).enumerate() {
                    let near: Vec<_> = ports.iter().map(Port::place).collect();
                    let cpus = config.lanes.cpus(lane, &near)?;
                    engine.lanes.push(LaneThread::start(Lane::new(ports), idle, alarm, cpus)?);
                }
                None
            }
        };
        for opened in &engine.devices {
            if let Some(device) = &mut *lock(&opened.device) {
                device.keep_file();
            }
        }
        let (devices, segments, lanes) = (engine.devices.len(), engine.segments.len(), engine.lanes.len());
        tracing::info!(devices, segments, lanes, "the engine is open");
        Ok((engine, lane))
    }

    /// What the engine knows of its first device.
    pub fn info(&self) -> &DeviceInfo {
        // An engine has a device: it is made of one or more.
        &self.devices[0].info
    }

    /// The devices, in the order in which layouts name them.
    pub fn devices(&self) -> impl ExactSizeIterator<Item = EngineDevice<'_>> {
        self.devices.iter().map(|opened| EngineDevice { opened })
    }

    /// A device by its number; they count from 0.
    pub fn device(&self, device: usize) -> Option<EngineDevice<'_>> {
        self.devices.get(device).map(|opened| EngineDevice { opened })
    }

    /// How many lanes have a thread.
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    fn first(&self) -> EngineDevice<'_> {
        EngineDevice { opened: &self.devices[0] }
    }

    /// The segments that requests can name.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Stripes on the devices that are not served, each with the reason, such as which members are missing.
    pub fn not_opened(&self) -> &[NotOpened] {
        &self.not_opened
    }

    /// Who has taken a device over from this engine, if anybody has: the first such device.
    pub fn taken_over(&self) -> Option<&TakenOver> {
        self.devices.iter().find_map(|opened| opened.taken_over.get())
    }

    /// A batch with room for `capacity` tasks; it grows when more are submitted.
    ///
    /// # Errors
    /// [`TooManyBatches`].
    pub fn allocate_batch(&self, capacity: u32) -> Result<Batch, TooManyBatches> {
        self.allocate_batch_with(BatchOptions::with_capacity(capacity))
    }

    /// A batch with more than a capacity.
    ///
    /// # Errors
    /// [`TooManyBatches`].
    pub fn allocate_batch_with(&self, options: BatchOptions) -> Result<Batch, TooManyBatches> {
        // Acquire: what lanes have taken out of their inboxes of a batch that lives no more, whoever puts this one there finds
        // taken out.
        let more = |live| (live < self.max_batches).then_some(live + 1);
        let counted = self.live_batches.fetch_update(Ordering::Acquire, Ordering::Relaxed, more);
        counted.map_err(|live| TooManyBatches { live })?;
        Ok(Batch::new(options, self.devices.len(), Arc::clone(&self.progress), Arc::clone(&self.live_batches)))
    }

    /// Appends a task for each request, all or none, and hands the batch to the lanes. The index of the first one. A
    /// request that cannot be served becomes a task that is INVALID; [`Batch::refusal`] says why.
    ///
    /// # Errors
    /// [`SubmitError`] when the batch cannot hold them, was freed, or is another engine's.
    #[inline]
    pub fn submit(&self, batch: &Batch, requests: &[Request]) -> Result<u32, SubmitError> {
        let registered = self.registered.load();
        let mut plain = Plain::new(&self.segments, &registered.nameable.direct);
        let other = |request: &Request| admit(request, &self.segments, &registered.nameable);
        self.hand_over(batch, requests, |request| plain.transfer(request), other)
    }

    /// As [`submit`](Self::submit), when work of others on the engine's GPU is done that writes what the requests read: waits
    /// for it here, in the caller's thread, and holds nothing meanwhile. Whoever knows that it is done need not.
    ///
    /// # Errors
    /// [`SubmitAfterError`]; nothing is appended then.
    pub fn submit_after(
        &self,
        producer: GpuProducer,
        batch: &Batch,
        requests: &[Request],
    ) -> Result<u32, SubmitAfterError> {
        self.gpu().ok_or(SubmitAfterError::NoGpu)?.wait_for(producer)?;
        Ok(self.submit(batch, requests)?)
    }

    /// Appends a task that makes every write to `segment` durable that has COMPLETED before. Its index.
    ///
    /// It is FAILED, without an NVMe status, where a device of the segment had to be reset, or has lost its power, while
    /// such writes were in its volatile cache: they may be lost, and whoever needs them writes them again. That is said
    /// once.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn submit_flush(&self, batch: &Batch, target_id: SegmentId) -> Result<u32, SubmitError> {
        self.hand_over(batch, &[target_id], |_| None, |target_id| admit_flush(*target_id, &self.segments))
    }

    /// Appends a task that has `length` bytes from `target_offset` of a segment read as zeroes; both are multiples of
    /// its block. By Write Zeroes where the device has it, else by writes; as durable as the segment's writes are. Its
    /// index.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn submit_zeroes(
        &self,
        batch: &Batch,
        target_id: SegmentId,
        target_offset: u64,
        length: u64,
    ) -> Result<u32, SubmitError> {
        self.submit_range(batch, Operation::Zeroes, target_id, target_offset, length)
    }

    /// Appends a task that tells the devices that `length` bytes from `target_offset` of a segment are of no use any
    /// more; both are multiples of its block. Afterwards each block reads as zeroes where
    /// [`Segment::deallocated_is_zero`] says so and the device has followed, which it need not; or as before, or as
    /// anything else. INVALID where a device of the segment has no Dataset Management. Its index.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn submit_deallocate(
        &self,
        batch: &Batch,
        target_id: SegmentId,
        target_offset: u64,
        length: u64,
    ) -> Result<u32, SubmitError> {
        self.submit_range(batch, Operation::Deallocate, target_id, target_offset, length)
    }

    fn submit_range(
        &self,
        batch: &Batch,
        operation: Operation,
        target_id: SegmentId,
        target_offset: u64,
        length: u64,
    ) -> Result<u32, SubmitError> {
        let admit = |range: &(u64, u64)| admit_range(operation, target_id, range.0, range.1, &self.segments);
        self.hand_over(batch, &[(target_offset, length)], |_| None, admit)
    }

    #[inline]
    fn hand_over<R>(
        &self,
        batch: &Batch,
        requests: &[R],
        transfer: impl FnMut(&R) -> Option<Transfer>,
        other: impl Fn(&R) -> Result<Work, RequestError>,
    ) -> Result<u32, SubmitError> {
        // A batch of two engines would have two owners of its progress.
        if !batch.is_counted_in(&self.live_batches) {
            return Err(SubmitError::OtherEngine);
        }
        let hand = |lane: u8| {
            if let Some(opened) = self.devices.get(usize::from(lane)) {
                // An inbox has room for every batch that lives, and each is in it once at most.
                let full = opened.inbox.push(Arc::clone(&batch.shared)).is_err();
                debug_assert!(!full, "more batches than are counted");
            }
        };
        let (first, lanes) = batch.append(requests, transfer, other, hand)?;
        tracing::trace!(batch = batch.name(), first, requests = requests.len(), "submitted");
        for lane in lanes.iter() {
            if let Some(opened) = self.devices.get(usize::from(lane))
                && !opened.bell.ring()
            {
                give_up_inbox(&opened.inbox, lane, &opened.bell);
            }
        }
        Ok(first)
    }

    /// What the lanes have done, all together; as of their last turns.
    pub fn counters(&self) -> EngineCounters {
        self.devices().map(|device| device.counters()).fold(EngineCounters::default(), EngineCounters::plus)
    }

    /// What the devices that are models have seen of it, all together.
    pub fn model_counters(&self) -> Option<ModelCounters> {
        self.devices().filter_map(EngineDevice::model_counters).reduce(ModelCounters::plus)
    }

    /// What the host last said when it failed the store of a model, such as `the file disk.img: No space left on device`; `None`: it
    /// never did, or the devices are no models.
    pub fn store_error(&self) -> Option<String> {
        self.devices().find_map(|device| device.store_error())
    }

    /// What a driver must never do and this one did, as the models recorded it. Empty, or there is a mistake in
    /// Tentpeg.
    pub fn violations(&self) -> Vec<Violation> {
        self.devices().flat_map(|device| device.violations()).collect()
    }

    /// What the first device, a model, can be made to do wrong.
    pub fn faults(&self) -> Option<Faults> {
        self.first().faults()
    }

    /// How often each step of recovery was taken for the first device.
    pub fn recovery_counters(&self) -> Option<RecoveryCounters> {
        self.first().recovery_counters()
    }

    /// The SMART / Health Information of the first device.
    ///
    /// # Errors
    /// [`ControllerError`] when the controller does not answer.
    pub fn smart_log(&self) -> Result<SmartLog, ControllerError> {
        self.first().smart_log()
    }

    /// Closes an engine whose lanes have threads.
    ///
    /// # Errors
    /// [`ControllerError`] when a controller did not stop in the orderly way: the first one. It is closed all the same.
    pub fn close(mut self) -> Result<(), ControllerError> {
        let ports = self.stop_threads();
        self.shut_down(ports)
    }

    /// Closes an engine whose lane the caller drives. Another engine's lane is dropped, and this one's is one that was not
    /// given back.
    ///
    /// # Errors
    /// As [`close`](Self::close).
    pub fn close_with(mut self, lane: Lane) -> Result<(), ControllerError> {
        self.shut_down(lane.into_ports())
    }

    /// The ports of lanes with threads, but for those of threads that panicked.
    fn stop_threads(&mut self) -> Vec<Port> {
        // All at once: one may have to be left to itself.
        self.lanes.iter().for_each(LaneThread::tell_to_stop);
        let stopped: Vec<Lane> = self.lanes.drain(..).filter_map(LaneThread::join).collect();
        stopped.into_iter().flat_map(Lane::into_ports).collect()
    }

    /// Stop I/O, then the queues, then the controllers; regions go last, with the engine (invariant 3).
    fn shut_down(&mut self, mut ports: Vec<Port>) -> Result<(), ControllerError> {
        tracing::debug!(devices = self.devices.len(), "the engine closes");
        let mut closed = Ok(());
        for opened in &self.devices {
            let port = ports.iter_mut().find(|port| port.is_of(&opened.closing));
            closed = closed.and(opened.shut_down(port, self.drain_timeout));
        }
        self.end_registrations();
        closed
    }
}

impl Opened {
    fn shut_down(&self, port: Option<&mut Port>, drain_timeout: Duration) -> Result<(), ControllerError> {
        if port.is_none() {
            // Before the device is taken: a lane that finds none knows then that it must wait for the end.
            self.closing.begin();
        }
        let Some(mut device) = lock(&self.device).take() else { return Ok(()) };
        let Some(port) = port else {
            let stopped = device.shutdown();
            self.closing.finish();
            return stopped;
        };
        if port.drain(drain_timeout) {
            // While the controller can still be told.
            let released = if port.may_issue() { device.release(port.pair()) } else { Ok(()) };
            let deleted = device.controller.delete_queue_pair(port.pair());
            return device.shutdown().and(deleted).and(released);
        }
        // Commands that do not end: the end of the controller's reach ends them, and only then are their tasks told.
        let ended = device.controller.stop_reach();
        port.abandon_after(&ended);
        device.shutdown()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let ports = self.stop_threads();
        // Who wants to know closes.
        let _ = self.shut_down(ports);
    }
}

/// By what a device does what it need not have a command for, and the zeroes that are written where it has no Write
/// Zeroes.
fn means(info: &DeviceInfo, held: &Held) -> Result<(Means, Option<Region<HostMemory>>), MemoryError> {
    let limits = info.limits;
    let optional = held.controller.limits().optional;
    let (zeroes, memory) = match write_zeroes(&held.controller, &held.namespace, &limits) {
        Some((most, deallocate)) => (Zeroes::Command { most, deallocate }, None),
        None => {
            let memory = HostMemory::allocate(ZEROES.max(limits.page_size() as usize))?;
            let region = held.clock.function().dma().register(memory, Access::DEVICE_READS)?;
            let (iova, len) = (region.iova(), region.range().len());
            (Zeroes::Writes { iova, len }, Some(region))
        }
    };
    let deallocation = if optional.oncs.contains(Oncs::DATASET_MANAGEMENT) {
        u64::from(optional.max_range_blocks).min(optional.max_dataset_blocks)
    } else {
        0
    };
    Ok((Means { zeroes, deallocation, staging: staging::buffer(&limits) }, memory))
}
