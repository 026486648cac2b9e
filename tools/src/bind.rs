//! `tentpeg bind` and `tentpeg unbind`: give a controller to VFIO, and back to the kernel.
//!
//! A [`Plan`] is worked out from what sysfs says, and refused where the kernel, or somebody, uses the device. It is a
//! short list of writes to files of sysfs, which can be shown instead of being done. It names one function: no other
//! device of the same kind is touched, as it would be by `new_id`. What was done before something failed is taken back.

mod error;
mod look;

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use tentpeg_driver::bus::{PciAddress, PciFunction, Sysfs, VFIO_DRIVER, is_vfio_driver};

pub use error::BindError;
pub(crate) use error::take_from;
use look::{refuse_driven, refuse_used};

/// What the user asks for.
#[derive(Args, Clone, Debug)]
pub struct BindArgs {
    /// The controllers by PCI address, such as 0000:04:00.0; `tentpeg list` shows them
    #[arg(required = true)]
    pub addresses: Vec<PciAddress>,
    /// Show what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// A write to a file of sysfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    path: PathBuf,
    text: String,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "echo {} > {}", self.text, self.path.display())
    }
}

/// What is to be done with one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    address: PciAddress,
    to_vfio: bool,
    /// The driver that has it.
    driver: Option<String>,
    /// The only one that might have it.
    driver_override: Option<String>,
    steps: Vec<Step>,
    notes: Vec<String>,
}

impl Plan {
    /// The plan that gives the controller at `address` to VFIO; nothing is done where it is there.
    ///
    /// # Errors
    /// [`BindError`], when it must stay where it is.
    pub fn bind(sysfs: &Sysfs, address: PciAddress) -> Result<Self, BindError> {
        let function = controller(sysfs, address)?;
        refuse_used(sysfs, &function)?;
        Self::take(sysfs, &function)
    }

    /// The plan that gives any function to VFIO, an accelerator that stands beside a controller for one. Whether
    /// somebody uses it is for the caller to know.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn take(sysfs: &Sysfs, function: &PciFunction) -> Result<Self, BindError> {
        let address = function.address;
        let group = function.iommu_group.ok_or(BindError::NoGroup { address })?;
        if !function.is_on_vfio() && !sysfs.path(&format!("/sys/bus/pci/drivers/{VFIO_DRIVER}")).is_dir() {
            return Err(BindError::NoVfio);
        }
        let others = sysfs.hindrances(group).into_iter().filter(|other| other.address != Some(address));
        let notes = others.map(|other| {
            format!(
                "{address} cannot be opened yet: {} of the same IOMMU group {group} is with {}: bind or unbind it too",
                other.name, other.driver
            )
        });
        let steps = if function.is_on_vfio() { Vec::new() } else { move_to(sysfs, function, VFIO_DRIVER) };
        Ok(Self { notes: notes.collect(), ..Self::new(function, true, steps) })
    }

    /// The plan that gives the controller at `address` back to the kernel's own driver.
    ///
    /// # Errors
    /// [`BindError`], when a process drives it: the kernel would wait for that process, and we with it.
    pub fn unbind(sysfs: &Sysfs, address: PciAddress) -> Result<Self, BindError> {
        let function = controller(sysfs, address)?;
        if function.is_on_vfio() {
            refuse_driven(sysfs, &function)?;
        }
        // An empty line takes the override away.
        let mut steps = move_to(sysfs, &function, "");
        if function.driver.is_some() && !function.is_on_vfio() {
            // It stays with the driver that has it, but not for VFIO to have it the next time.
            let is_ours = function.driver_override.as_deref().is_some_and(is_vfio_driver);
            steps.truncate(usize::from(is_ours));
        }
        Ok(Self::new(&function, false, steps))
    }

    fn new(function: &PciFunction, to_vfio: bool, steps: Vec<Step>) -> Self {
        let PciFunction { address, driver, driver_override, .. } = function.clone();
        Self { address, to_vfio, driver, driver_override, steps, notes: Vec::new() }
    }

    /// Does it, and looks whether the kernel followed. What was done is taken back when it did not.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn run(&self, sysfs: &Sysfs) -> Result<(), BindError> {
        self.run_by(sysfs, &mut write)
    }

    fn run_by(&self, sysfs: &Sysfs, write: &mut Write<'_>) -> Result<(), BindError> {
        self.do_steps(sysfs, write).map_err(|error| {
            let left = self.take_back(sysfs, write);
            error.and_left(left.as_slice())
        })
    }

    fn do_steps(&self, sysfs: &Sysfs, write: &mut Write<'_>) -> Result<(), BindError> {
        for Step { path, text } in &self.steps {
            let failed = |source| BindError::Write { path: path.clone(), text: text.clone(), source };
            write(path, text).map_err(failed)?;
        }
        let function = sysfs.function(self.address)?;
        let wanted = if self.to_vfio { VFIO_DRIVER } else { "the kernel's own driver" };
        match function.driver.as_deref() {
            None if !self.to_vfio => Err(BindError::NoDriver { address: self.address }),
            _ if self.to_vfio == function.is_on_vfio() => Ok(()),
            found => {
                let found = found.unwrap_or("no driver").to_owned();
                Err(BindError::Elsewhere { address: self.address, wanted: wanted.to_owned(), found })
            }
        }
    }

    /// Has the driver that had the function before have it again, if VFIO was to have it, and whoever might have it then
    /// may again. Says where it is if that did not do; the error that led here tells why.
    fn take_back(&self, sysfs: &Sysfs, write: &mut Write<'_>) -> Option<String> {
        if !self.to_vfio || self.steps.is_empty() {
            return None;
        }
        let (address, folder) = (self.address.to_string(), sysfs.function_folder(self.address));
        let _ = write(&folder.join("driver_override"), self.driver_override.as_deref().unwrap_or_default());
        let function = sysfs.function(self.address).ok()?;
        if function.is_on_vfio() && refuse_driven(sysfs, &function).is_ok() {
            let _ = write(&folder.join("driver/unbind"), &address);
        }
        if self.driver.is_some() && function.driver != self.driver {
            let _ = write(&probe_file(sysfs), &address);
        }
        let driver = sysfs.function(self.address).ok()?.driver;
        (driver != self.driver).then(|| {
            let driver = driver.as_deref().unwrap_or("no driver");
            format!("{address} is with {driver} now: `tentpeg unbind {address}` gives it to the kernel")
        })
    }
}

/// The steps, one on a line, and what else there is to say.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.steps.is_empty() {
            let whose = self.driver.as_deref().filter(|_| self.to_vfio).unwrap_or("the kernel");
            writeln!(f, "# {} is with {whose} already", self.address)?;
        }
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))?;
        self.notes.iter().try_for_each(|note| writeln!(f, "# {note}"))
    }
}

/// Binds, or unbinds, each of `addresses`; shows it where that is all that is wanted. All plans are made before the
/// first is carried out.
///
/// # Errors
/// [`BindError`]: of a plan, and nothing was done; or of a step, and those that VFIO was given before it were taken back,
/// or are named.
pub fn run(sysfs: &Sysfs, args: &BindArgs, to_vfio: bool) -> Result<String, BindError> {
    run_by(sysfs, args, to_vfio, &mut write)
}

fn run_by(sysfs: &Sysfs, args: &BindArgs, to_vfio: bool, write: &mut Write<'_>) -> Result<String, BindError> {
    let plan = |&address| if to_vfio { Plan::bind(sysfs, address) } else { Plan::unbind(sysfs, address) };
    let plans = args.addresses.iter().map(plan).collect::<Result<Vec<_>, _>>()?;
    if !args.dry_run {
        let mut done: Vec<Plan> = Vec::new();
        for address in &args.addresses {
            // Asked anew, as the last of them may have come into use while the first was moved.
            match plan(address).and_then(|plan| plan.run_by(sysfs, write).map(|()| plan)) {
                Ok(plan) => done.push(plan),
                Err(error) => {
                    let left: Vec<_> = done.iter().rev().filter_map(|plan| plan.take_back(sysfs, write)).collect();
                    return Err(error.and_left(&left));
                }
            }
        }
    }
    Ok(plans.iter().map(Plan::to_string).collect())
}

/// The NVMe controller at an address, if it is the kernel's, VFIO's or nobody's.
fn controller(sysfs: &Sysfs, address: PciAddress) -> Result<PciFunction, BindError> {
    let function = sysfs.function(address)?;
    if !function.is_nvme() {
        return Err(BindError::NotNvme { address, class: function.class });
    }
    match function.other_driver() {
        Some(driver) => Err(BindError::OtherDriver { address, driver: driver.to_owned() }),
        None => Ok(function),
    }
}

/// Writes a line to a file of sysfs.
type Write<'a> = dyn FnMut(&Path, &str) -> io::Result<()> + 'a;

/// The writes that have `driver`, or where it is empty whichever driver wants it, take the function.
fn move_to(sysfs: &Sysfs, function: &PciFunction, driver: &str) -> Vec<Step> {
    let folder = sysfs.function_folder(function.address);
    let mut steps = vec![Step { path: folder.join("driver_override"), text: driver.to_owned() }];
    if function.driver.is_some() {
        steps.push(Step { path: folder.join("driver/unbind"), text: function.address.to_string() });
    }
    steps.push(Step { path: probe_file(sysfs), text: function.address.to_string() });
    steps
}

/// Writes a line to a file that is there.
fn write(path: &Path, text: &str) -> io::Result<()> {
    // In one write: each is a command to the kernel.
    OpenOptions::new().write(true).truncate(true).open(path)?.write_all(format!("{text}\n").as_bytes())
}

fn probe_file(sysfs: &Sysfs) -> PathBuf {
    sysfs.path("/sys/bus/pci/drivers_probe")
}

#[cfg(test)]
mod tests;
