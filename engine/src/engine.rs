//! An engine: one device, its lane, its segments, and the memory that requests can name.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use crossbeam_queue::ArrayQueue;
use tentpeg_driver::controller::{ControllerConfig, ControllerError, RecoveryCounters};
use tentpeg_driver::dma::{Access, HostMemory, Region, RegionEntry, RegionTable};
use tentpeg_driver::model::{Faults, ModelCounters, Violation};
use tentpeg_driver::queue::Limits;
use tentpeg_driver::spec::identify::{IdentifyController, IdentifyNamespace};
use tentpeg_driver::spec::log::SmartLog;
use tentpeg_driver::spec::registers::{Cap, Vs};
use thiserror::Error;

use crate::admission::{RequestError, admit};
use crate::batch::{Batch, SubmitError};
use crate::counters::{EngineCounters, SharedCounters};
use crate::device::{Device, OpenError, SharedDevice, lock};
use crate::lane::{Closing, Inbox, Lane, LaneThread};
use crate::memory::{Memory, MemoryError};
use crate::progress::Progress;
use crate::segment::Segment;
use crate::task::Work;
use crate::uri::DeviceUri;
use crate::{Request, SegmentId};

/// Who turns an engine's lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneMode {
    /// A thread of the engine's own.
    Thread,
    /// The caller, by [`Lane::turn`]; no thread is started, and a model takes its turns there too.
    CallerDriven,
}

/// How to run an engine.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Entries of the lane's queues; fewer where the controller has fewer. One command fewer can be in flight.
    pub queue_entries: u32,
    /// Batches that can live at a time.
    pub max_batches: usize,
    /// How long closing waits for commands in flight before it stops the controller.
    pub drain_timeout: Duration,
    /// How to drive the controller: its deadlines, and when recovery begins.
    pub controller: ControllerConfig,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            queue_entries: 256,
            max_batches: 4096,
            drain_timeout: Duration::from_secs(10),
            controller: ControllerConfig::default(),
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

/// What an engine knows of its device.
#[derive(Debug, Clone)]
pub struct DeviceInfo {
    /// The device's URI, with every setting.
    pub name: String,
    /// Controller Capabilities.
    pub cap: Cap,
    /// The version of the specification that the controller follows.
    pub version: Vs,
    /// Identify Controller.
    pub controller: Box<IdentifyController>,
    /// The namespace that is served.
    pub nsid: u32,
    /// Identify Namespace.
    pub namespace: Box<IdentifyNamespace>,
    /// What fits into a command.
    pub limits: Limits,
    /// Whether it may be written.
    pub writable: bool,
    /// Whether it keeps what is written; a null store does not.
    pub moves_data: bool,
    /// I/O queue pairs that the controller granted.
    pub queue_pairs: u16,
    /// Commands that can be in flight on the lane.
    pub depth: usize,
    /// The file that opening created for it, where it did.
    pub created_file: Option<PathBuf>,
}

/// An open device with one lane.
///
/// Closing an engine, by [`close`](Self::close) or by dropping it, gives up what is not issued, waits for what is,
/// and shuts the controller down; every task has ended then.
pub struct Engine {
    device: SharedDevice,
    info: DeviceInfo,
    lane: Option<LaneThread>,
    inbox: Inbox,
    segments: Vec<Segment>,
    regions: ArcSwap<RegionTable>,
    memory: Mutex<Vec<Arc<Region<HostMemory>>>>,
    live_batches: Arc<AtomicUsize>,
    progress: Arc<Progress>,
    counters: Arc<SharedCounters>,
    /// Tells a lane that was not given back.
    closing: Arc<Closing>,
    config: EngineConfig,
}

impl Engine {
    /// Opens the device that `uri` names, with a lane in a thread of its own.
    ///
    /// # Errors
    /// [`OpenError`]; nothing is left open, and no file is created, then.
    pub fn open(uri: &str, config: EngineConfig) -> Result<Self, OpenError> {
        let (mut engine, lane) = Self::prepare(uri, config, LaneMode::Thread)?;
        engine.lane = Some(LaneThread::start(lane).map_err(OpenError::Thread)?);
        engine.keep_file();
        Ok(engine)
    }

    /// Opens the device that `uri` names, with a lane that the caller drives: nothing moves but in its
    /// [`turn`](Lane::turn). Give the lane back to [`close_with`](Self::close_with).
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_caller_driven(uri: &str, config: EngineConfig) -> Result<(Self, Lane), OpenError> {
        let (engine, lane) = Self::prepare(uri, config, LaneMode::CallerDriven)?;
        engine.keep_file();
        Ok((engine, lane))
    }

    fn keep_file(&self) {
        if let Some(device) = &mut *lock(&self.device) {
            device.keep_file();
        }
    }

    fn prepare(uri: &str, config: EngineConfig, mode: LaneMode) -> Result<(Self, Lane), OpenError> {
        let uri: DeviceUri = uri.parse()?;
        let mut device = Device::open(&uri, mode, &config.controller)?;
        let entries = config.queue_entries.min(device.controller.limits().max_queue_entries);
        let pair = device
            .controller
            .create_queue_pair(entries)
            .map_err(|source| OpenError::Controller { device: device.name.clone(), source })?;
        let info = DeviceInfo {
            name: device.name.clone(),
            cap: device.controller.cap(),
            version: device.controller.version(),
            controller: Box::new(device.controller.identify().clone()),
            nsid: device.namespace.nsid,
            namespace: device.namespace.identify.clone(),
            limits: device.limits,
            writable: device.writable,
            moves_data: device.moves_data,
            queue_pairs: device.controller.queue_pairs(),
            depth: pair.slots(),
            created_file: device.created_file(),
        };
        // A model has no label: the one segment is the whole of it.
        let segment = Segment {
            id: SegmentId(1),
            name: "whole".to_owned(),
            nsid: info.nsid,
            first_lba: 0,
            capacity: device.limits.capacity(),
            writable: info.writable,
            limits: device.limits,
        };
        let inbox: Inbox = Arc::new(ArrayQueue::new(config.max_batches.max(1)));
        let counters = Arc::<SharedCounters>::default();
        let closing = Arc::<Closing>::default();
        let shared: SharedDevice = Arc::default();
        let lane = Lane::new(
            pair,
            &device,
            Arc::clone(&shared),
            Arc::clone(&inbox),
            Arc::clone(&counters),
            Arc::clone(&closing),
        );
        *lock(&shared) = Some(device);
        let engine = Self {
            device: shared,
            info,
            lane: None,
            inbox,
            segments: vec![segment],
            regions: ArcSwap::default(),
            memory: Mutex::default(),
            live_batches: Arc::default(),
            progress: Arc::default(),
            counters,
            closing,
            config,
        };
        Ok((engine, lane))
    }

    /// What the engine knows of its device.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The segments that requests can name.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Allocates host memory and registers it with the device.
    ///
    /// # Errors
    /// [`MemoryError`]; nothing is allocated then.
    pub fn allocate_memory(&self, len: usize) -> Result<Memory, MemoryError> {
        let mut held = lock(&self.memory);
        let device = lock(&self.device);
        let memory = HostMemory::allocate(len)?;
        let space = match &*device {
            Some(device) => &device.space,
            None => unreachable!("the device is taken only by closing, which owns the engine"),
        };
        let region = Arc::new(space.register(memory, Access::all())?);
        let memory = Memory { region: Arc::clone(&region) };
        held.push(region);
        let entries = held.iter().map(|region| {
            let memory = Memory { region: Arc::clone(region) };
            let (address, len) = (memory.address(), memory.len() as u64);
            RegionEntry { address, len, iova: region.iova(), access: region.access() }
        });
        // Two allocations of this process that are both alive share no address.
        if let Ok(table) = RegionTable::new(entries.collect()) {
            self.regions.store(Arc::new(table));
        }
        Ok(memory)
    }

    /// A batch with room for `capacity` tasks; it grows when more are submitted.
    ///
    /// # Errors
    /// [`TooManyBatches`].
    pub fn allocate_batch(&self, capacity: u32) -> Result<Batch, TooManyBatches> {
        let live = self.live_batches.fetch_add(1, Ordering::Relaxed);
        if live >= self.inbox.capacity() {
            self.live_batches.fetch_sub(1, Ordering::Relaxed);
            return Err(TooManyBatches { live });
        }
        Ok(Batch::new(capacity, Arc::clone(&self.progress), Arc::clone(&self.live_batches)))
    }

    /// Appends a task for each request, all or none, and hands the batch to the lane. The index of the first one. A
    /// request that cannot be served becomes a task that is INVALID; [`Batch::refusal`] says why.
    ///
    /// # Errors
    /// [`SubmitError`] when the batch cannot hold them, or is another engine's.
    #[inline]
    pub fn submit(&self, batch: &Batch, requests: &[Request]) -> Result<u32, SubmitError> {
        let regions = self.regions.load();
        let works = requests.iter().map(|request| admit(request, &self.segments, &regions).map(Work::Transfer));
        self.hand_over(batch, works)
    }

    /// Appends a task that makes every write to `segment` durable that has COMPLETED before. Its index.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn submit_flush(&self, batch: &Batch, target_id: SegmentId) -> Result<u32, SubmitError> {
        let known = self.segments.iter().any(|segment| segment.id == target_id);
        let work = if known { Ok(Work::Flush) } else { Err(RequestError::NoSegment { target_id }) };
        self.hand_over(batch, std::iter::once(work))
    }

    #[inline]
    fn hand_over(
        &self,
        batch: &Batch,
        works: impl ExactSizeIterator<Item = Result<Work, RequestError>>,
    ) -> Result<u32, SubmitError> {
        // A batch that two lanes had at a time would have two owners of its progress.
        if !batch.is_counted_in(&self.live_batches) {
            return Err(SubmitError::OtherEngine);
        }
        let (first, tell) = batch.append(works)?;
        if tell {
            // The inbox has room for every batch that lives, and each is in it once at most.
            let full = self.inbox.push(Arc::clone(&batch.shared)).is_err();
            debug_assert!(!full, "more batches than are counted");
        }
        Ok(first)
    }

    /// What the lane has done; as of its last turn.
    pub fn counters(&self) -> EngineCounters {
        self.counters.read()
    }

    /// What the model has seen of it.
    pub fn model_counters(&self) -> Option<ModelCounters> {
        lock(&self.device).as_ref().map(|device| device.model.counters())
    }

    /// What the host last said when it failed the store of a model, such as `the file disk.img: No space left on device`; `None`: it
    /// never did, or the device is no model.
    pub fn store_error(&self) -> Option<String> {
        lock(&self.device).as_ref().and_then(|device| device.model.store_error())
    }

    /// What a driver must never do and this one did, as the model recorded it. Empty, or there is a mistake in
    /// Tentpeg.
    pub fn violations(&self) -> Vec<Violation> {
        lock(&self.device).as_ref().map(|device| device.model.violations()).unwrap_or_default()
    }

    /// What a model can be made to do wrong.
    pub fn faults(&self) -> Option<Faults> {
        lock(&self.device).as_ref().map(|device| device.model.faults())
    }

    /// How often each step of recovery was taken.
    pub fn recovery_counters(&self) -> Option<RecoveryCounters> {
        lock(&self.device).as_ref().map(|device| device.controller.recovery_counters())
    }

    /// The controller's SMART / Health Information.
    ///
    /// # Errors
    /// [`ControllerError`] when the controller does not answer.
    pub fn smart_log(&self) -> Result<SmartLog, ControllerError> {
        match &mut *lock(&self.device) {
            Some(device) => device.controller.smart_log(),
            None => unreachable!("the device is taken only by closing, which owns the engine"),
        }
    }

    /// Closes an engine whose lane has a thread.
    ///
    /// # Errors
    /// [`ControllerError`] when the controller did not stop in the orderly way. It is closed all the same.
    pub fn close(mut self) -> Result<(), ControllerError> {
        let lane = self.lane.take().and_then(LaneThread::stop);
        self.shut_down(lane)
    }

    /// Closes an engine whose lane the caller drives.
    ///
    /// # Errors
    /// As [`close`](Self::close).
    pub fn close_with(mut self, lane: Lane) -> Result<(), ControllerError> {
        self.shut_down(Some(lane))
    }

    /// Stop I/O, then the queues, then the controller; regions go last, with the engine (invariant 3).
    fn shut_down(&mut self, lane: Option<Lane>) -> Result<(), ControllerError> {
        if lane.is_none() {
            // Before the device is taken: a lane that finds none knows then that it must wait for the end.
            self.closing.begin();
        }
        let Some(mut device) = lock(&self.device).take() else { return Ok(()) };
        let Some(mut lane) = lane else {
            let stopped = device.controller.shutdown();
            self.closing.finish();
            return stopped;
        };
        if lane.drain(self.config.drain_timeout) {
            let deleted = device.controller.delete_queue_pair(lane.pair());
            return device.controller.shutdown().and(deleted);
        }
        // Commands that do not end: the end of the controller's reach ends them, and only then are their tasks told.
        let ended = device.controller.stop_reach();
        lane.abandon_after(&ended);
        device.controller.shutdown()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let lane = self.lane.take().and_then(LaneThread::stop);
        // Who wants to know closes.
        let _ = self.shut_down(lane);
    }
}
