//! Tentpeg's engine: it owns block devices and moves blocks between them and registered memory, in TENT's vocabulary.
//!
//! An [`Engine`] opens a device by URI, or several, each with a [`Lane`]: a thread, or the caller's own. What is on a
//! device, its label or something foreign, is looked at before anything is written, and its label says which segments
//! there are. Requests name a [`Segment`] and go into a [`Batch`], each becomes a task, and each task ends once, with its full length
//! or none.
//!
//! ```
//! use std::time::Duration;
//! use tentpeg_engine::{Engine, EngineConfig, OpCode, Request, TransferState};
//!
//! let engine = Engine::open("model:size=64MiB", EngineConfig::default())?;
//! let segment = engine.segments()[0].id;
//! let memory = engine.allocate_memory(8192)?;
//! memory.view().write(0, b"a block");
//!
//! let batch = engine.allocate_batch(2)?;
//! let request = |opcode, at| Request { opcode, source: memory.address() + at, target_id: segment, target_offset: 0, length: 4096 };
//! engine.submit(&batch, &[request(OpCode::Write, 0)])?;
//! batch.wait(Duration::from_secs(10))?;
//! let read = engine.submit(&batch, &[request(OpCode::Read, 4096)])?;
//! batch.wait(Duration::from_secs(10))?;
//! assert_eq!(batch.status(read)?.state, TransferState::Completed);
//!
//! let mut bytes = [0; 7];
//! memory.view().read(4096, &mut bytes);
//! assert_eq!(&bytes, b"a block");
//! engine.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod administration;
mod admission;
mod batch;
pub mod blocks;
mod byte_size;
mod clock;
mod counters;
mod device;
mod engine;
pub mod foreign;
mod gpu;
pub mod label;
mod lane;
mod lanes;
pub mod link;
mod memory;
mod opening;
pub mod ownership;
mod planning;
mod progress;
mod request;
mod segment;
mod staging;
pub mod statistics;
mod task;
mod uri;

pub use admission::RequestError;
pub use batch::{
    Batch, BatchOptions, BatchStatus, FailureReason, NoSuchTask, Priority, SubmitAfterError, SubmitError, WaitError,
};
pub use byte_size::{ByteSize, ByteSizeError};
pub use counters::EngineCounters;
pub use device::{Device, DeviceInfo, Devices, FileStoreError, OpenError};
pub use engine::{Engine, EngineConfig, EngineDevice, LaneMode, TooManyBatches};
pub use gpu::{
    GpuOptions, GpuProof, GpuSeries, GpuWords, GpuWordsError, MemoryPath, Moved, ProofError, Proving, ProvingError,
    WrongWords,
};
pub use lane::{CpuList, CpuListError, Lane, LaneError, LaneIdle, LaneOptions, LanePin};
pub use lanes::MAX_DEVICES;
pub use memory::{Memory, MemoryError, MemoryInUse, RegisterOptions};
pub use opening::{DeviceSource, NotOpened, OpenOptions, Scope, UnalignedReads};
pub use request::{OpCode, Request, SegmentId, TransferState, TransferStatus};
pub use segment::{BlockExtent, Durability, LayoutError, MemberLayout, Segment, SegmentLayout};
pub use tentpeg_driver::dma::{Access, CallerMemory, CallerMemoryError, InPlaceError};
pub use tentpeg_driver::gpu::{Accelerator, CallerGpuMemory, GpuPath, GpuPaths, GpuProducer};
pub use uri::{CacheUri, DeviceUri, ModelUri, PciUri, StoreUri, UriError, VfioUserUri};
