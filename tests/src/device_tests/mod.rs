//! One list of device tests, run on every tier.
//!
//! A test asks its [`Tier`] for a device and says what it wants of it ([`Wanted`]): a model can be made to order, a
//! drive is as it is. What a tier cannot give makes the test skipped, with the reason. Each test ends by comparing what
//! the driver did with what the device saw, where the device can tell.
//!
//! Tests own what they write: on hardware, a scratch range of a device that may be overwritten.

pub(crate) mod bench;
mod contract;
mod identity;
mod limits;
mod model;
mod queues;
mod table;
mod transfers;
mod vfio_user;

use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tentpeg_engine::EngineConfig;

pub use bench::{Bench, EngineBench, Seen, Witness};
pub use model::ModelTier;
pub use table::{Counts, Table, Verdicts};
pub use vfio_user::{READY, REFUSED, SEEN, ServerProcess, VfioUserTier, patient_client};

/// What a test wants of a device; `None` is whatever it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wanted {
    /// Bytes of a logical block.
    pub lba_size: Option<u32>,
    /// MDTS as it stands in Identify Controller.
    pub mdts: Option<u8>,
    /// CAP.MQES as it stands there.
    pub mqes: Option<u16>,
    /// CAP.MPSMIN.
    pub mpsmin: Option<u8>,
    /// CAP.DSTRD.
    pub dstrd: Option<u8>,
}

/// A way to devices.
pub trait Tier {
    /// What to call it in the table.
    fn name(&self) -> &str;

    /// An enabled controller with its first namespace.
    ///
    /// # Errors
    /// [`Ending::Skipped`] when the tier has no such device, [`Ending::Failed`] when it does not come up.
    fn controller(&self, wanted: Wanted) -> Result<Bench, Ending>;

    /// An engine on a device.
    ///
    /// # Errors
    /// As [`controller`](Self::controller).
    fn engine(&self, wanted: Wanted, config: EngineConfig) -> Result<EngineBench, Ending>;
}

/// How a test ended that did not pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The tier cannot run it.
    Skipped(String),
    /// The device, or the driver, did not do as the test wants.
    Failed(String),
}

impl<E: Error> From<E> for Ending {
    fn from(error: E) -> Self {
        Self::Failed(error.to_string())
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Skipped(reason) => write!(f, "skipped: {reason}"),
            Self::Failed(reason) => write!(f, "FAILED: {reason}"),
        }
    }
}

/// How a test ended.
pub type Verdict = Result<(), Ending>;

/// How a verdict stands in a table.
pub fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Ok(()) => "passed",
        Err(Ending::Skipped(_)) => "skipped",
        Err(Ending::Failed(_)) => "FAILED",
    }
}

/// A failure with this text unless `holds`.
pub(crate) fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(Ending::Failed(otherwise())) }
}

/// A test with its name.
pub struct DeviceTest {
    /// What it shows, as it stands in the table.
    pub name: String,
    run: Box<Run>,
}

/// What a test does on a tier.
type Run = dyn Fn(&dyn Tier) -> Verdict;

impl DeviceTest {
    pub(crate) fn new(name: impl Into<String>, run: impl Fn(&dyn Tier) -> Verdict + 'static) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }

    /// Runs it on a tier. A panic is a failure.
    pub fn run(&self, tier: &dyn Tier) -> Verdict {
        catch_unwind(AssertUnwindSafe(|| (self.run)(tier))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            Err(Ending::Failed(format!("it panicked: {}", text.unwrap_or("with no text"))))
        })
    }
}

/// All tests.
pub fn list() -> Vec<DeviceTest> {
    let mut tests = identity::tests();
    tests.extend(transfers::tests());
    tests.extend(queues::tests());
    tests.extend(limits::tests());
    tests.extend(contract::tests());
    tests
}
