//! Why devices are not opened.

use tentpeg_driver::controller::ControllerError;
use tentpeg_driver::gpu::KernelError;
use tentpeg_driver::model::ModelError;
use tentpeg_driver::vfio::VfioError;
use tentpeg_driver::vfio_user::VfioUserError;
use thiserror::Error;

use super::FileStoreError;
use crate::MAX_DEVICES;
use crate::administration::AdministrationError;
use crate::label::stripe::SetError;
use crate::lane::LaneError;
use crate::memory::MemoryError;
use crate::ownership::lock::LockError;
use crate::segment::LayoutError;
use crate::uri::UriError;

/// Why a device was not opened, or an engine not started.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Caller: the URI is wrong.
    #[error(transparent)]
    Uri(#[from] UriError),
    /// Caller or host: the file of a store.
    #[error(transparent)]
    File(#[from] FileStoreError),
    /// Caller or host: the model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Host: somebody else on this node has it open, or there is no lock.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// What is on the device, or whose it is.
    #[error(transparent)]
    Contents(#[from] AdministrationError),
    /// Caller: two of the devices are one, or one is a copy of the other.
    #[error("{second} is {first} once more, or a copy of it: name each device once")]
    Twice {
        /// A device.
        first: String,
        /// Another, with the same file, lock or label.
        second: String,
    },
    /// Caller: segments of one name on two devices.
    #[error("there is a segment '{}' on {first} and on {second}: rename one, or open one device alone", segment.escape_debug())]
    SegmentTwice {
        /// The name.
        segment: String,
        /// A device that has one.
        first: String,
        /// Another.
        second: String,
    },
    /// Caller: the devices have labels and no segment that can be opened.
    #[error(
        "{devices}: no segment can be opened{}",
        if missing.is_empty() { ": create one by `tentpeg segment create`".to_owned() } else { format!(": {}", missing.join("; ")) }
    )]
    NoSegments {
        /// The devices.
        devices: String,
        /// Why those that are there are not opened.
        missing: Vec<String>,
    },
    /// Caller: there is no segment of a name that was given for unaligned reads.
    #[error("there is no segment '{}' on {devices}", segment.escape_debug())]
    NoSegment {
        /// The name.
        segment: String,
        /// The devices.
        devices: String,
    },
    /// Caller: all of a device was to be written, and it has a label.
    #[error(
        "{device} has a label, which would be overwritten: open it for reading, or remove the label by `tentpeg label erase`"
    )]
    Labelled {
        /// The device.
        device: String,
    },
    /// The labels of a stripe.
    #[error(transparent)]
    Set(#[from] SetError),
    /// Device: the controller.
    #[error("{device}: {source}")]
    Controller {
        /// The device.
        device: String,
        /// What is wrong with it.
        source: ControllerError,
    },
    /// Device: it has no namespace that can be served.
    #[error("{device} has no namespace that can be served{}", reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default())]
    NoNamespace {
        /// The device.
        device: String,
        /// Why not the first one that it has.
        reason: Option<String>,
    },
    /// Caller: one device more than an engine can own.
    #[error("{device} is one device too many: an engine owns {MAX_DEVICES} at the most")]
    TooManyDevices {
        /// The device.
        device: String,
    },
    /// Caller or host: the function of this machine, or its way.
    #[error("{device}: {source}")]
    Vfio {
        /// The device, or the first of those that are opened together.
        device: String,
        /// Why.
        source: VfioError,
    },
    /// Caller or host: the server behind a socket.
    #[error("{device}: {source}")]
    VfioUser {
        /// The device.
        device: String,
        /// Why.
        source: VfioUserError,
    },
    /// Caller: functions that are to share an address space, by two ways.
    #[error("{first} and {second} cannot be opened by two ways: write the same way= for all, or none")]
    Ways {
        /// A device.
        first: String,
        /// Another.
        second: String,
    },
    /// Caller or host: the device's memory accesses do not go through the address space of those before it.
    #[error("{device} cannot join the address space of the devices that are open already: memory would have two IOVAs")]
    AddressSpace {
        /// The device.
        device: String,
    },
    /// Caller: a device of an engine with a GPU that cannot reach its memory.
    #[error("{device} cannot reach memory of {gpu}: {source}")]
    GpuNotReached {
        /// The device.
        device: String,
        /// The GPU.
        gpu: String,
        /// Why.
        source: ModelError,
    },
    /// Host: the GPU copies for no model.
    #[error("{device}: {gpu} makes no copies for it: {source}")]
    Mover {
        /// The device.
        device: String,
        /// The GPU.
        gpu: String,
        /// Why.
        source: KernelError,
    },
    /// Caller, or the label: segments that these devices cannot have.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// Host: no memory for lists of ranges, zeroes or staging.
    #[error("{device}: {source}")]
    Memory {
        /// The device.
        device: String,
        /// Why.
        source: MemoryError,
    },
    /// Caller or host: lanes that the engine cannot have.
    #[error(transparent)]
    Lane(#[from] LaneError),
    /// Host: no thread.
    #[error("cannot start a thread for a lane: {0}")]
    Thread(std::io::Error),
}
