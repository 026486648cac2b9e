//! What the first process of a guest does for the kernel: file systems, modules, power.

use std::ffi::{CStr, CString};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use tentpeg_driver::vfio::Way;

/// What stands before the settings, on the command line of the guest's kernel.
const SETTINGS: &str = "tentpeg=";

/// The guest's IOMMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Iommu {
    /// Whether it remaps interrupts.
    pub remaps_interrupts: bool,
    /// Bits of the addresses that it translates, 39 or 48.
    pub address_bits: u8,
}

/// What the guest is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// The tests.
    Test,
    /// [`compare`](super::compare).
    Compare,
}

impl Task {
    fn word(self) -> &'static str {
        match self {
            Self::Test => "test",
            Self::Compare => "compare",
        }
    }
}

/// What the host tells the guest's program. As text it is a word of the kernel's command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// By what functions are to be opened.
    pub way: Way,
    /// What the IOMMU is.
    pub iommu: Iommu,
    /// What is to be done.
    pub task: Task,
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = self.way.word();
        let remapping = if self.iommu.remaps_interrupts { "remapping" } else { "none" };
        write!(f, "{SETTINGS}{way},{remapping},{},{}", self.iommu.address_bits, self.task.word())
    }
}

impl Settings {
    /// Those on a kernel's command line, where they are.
    fn find(line: &str) -> Option<Self> {
        let word = line.split_whitespace().find_map(|word| word.strip_prefix(SETTINGS))?;
        let mut fields = word.split(',');
        let way = Way::of_word(fields.next()?)?;
        let remaps_interrupts = fields.next()? == "remapping";
        let address_bits = fields.next()?.parse().ok()?;
        let task = fields.next()?;
        let task = [Task::Test, Task::Compare].into_iter().find(|known| known.word() == task)?;
        Some(Self { way, iommu: Iommu { remaps_interrupts, address_bits }, task })
    }

    /// What the host says by the kernel's command line.
    ///
    /// # Errors
    /// It says nothing that is known.
    pub fn read() -> io::Result<Self> {
        let line = fs::read_to_string("/proc/cmdline")?;
        let none =
            || io::Error::other(format!("no {SETTINGS}WAY,REMAPPING,BITS,TASK on the kernel's command line: {line}"));
        Self::find(&line).ok_or_else(none)
    }
}

/// Mounts what sysfs, procfs and devices are looked for in.
///
/// # Errors
/// The kernel's, with the file system.
pub fn mount_all() -> io::Result<()> {
    for (kind, at) in [(c"proc", c"/proc"), (c"sysfs", c"/sys"), (c"devtmpfs", c"/dev"), (c"tmpfs", c"/tmp")] {
        fs::create_dir_all(Path::new(at.to_str().map_err(io::Error::other)?))?;
        mount(kind, at).map_err(|error| io::Error::other(format!("{at:?}: {error}")))?;
    }
    Ok(())
}

fn mount(kind: &CStr, at: &CStr) -> io::Result<()> {
    // SAFETY: the three are strings that end with a zero; no data is passed.
    let done = unsafe { libc::mount(kind.as_ptr(), at.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Where the report goes to: the second serial port. It can be opened more than once.
///
/// # Errors
/// The kernel's.
pub fn report() -> io::Result<File> {
    OpenOptions::new().write(true).open("/dev/ttyS1")
}

/// Loads modules of a folder, in the order that the file `order` of it names them, the last with `options`. A kernel that
/// has all built in comes without the folder.
///
/// # Errors
/// The kernel's, with the module.
pub fn load_modules(folder: &Path, order: &str, options: &str) -> io::Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    let order = fs::read_to_string(folder.join(order))?;
    let mut names = order.lines().peekable();
    while let Some(name) = names.next() {
        let options = if names.peek().is_none() { options } else { "" };
        match load_module(&File::open(folder.join(name))?, options) {
            // Two orders may have one of them in common.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            loaded => loaded.map_err(|error| io::Error::other(format!("module {name}: {error}")))?,
        }
    }
    Ok(())
}

fn load_module(file: &File, options: &str) -> io::Result<()> {
    let options = CString::new(options)?;
    let no_flags: libc::c_int = 0;
    // SAFETY: the kernel reads the file and a string that ends with a zero.
    let done = unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), options.as_ptr(), no_flags) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Switches the machine off. Returns only where this is not allowed.
pub fn power_off() -> io::Error {
    // SAFETY: the calls have no precondition; outside of a guest's first process the second is refused.
    unsafe {
        libc::sync();
        libc::reboot(libc::RB_POWER_OFF);
    }
    io::Error::last_os_error()
}

/// Whether this is the first process of a machine.
pub fn is_first_process() -> bool {
    std::process::id() == 1
}

/// Sets a module's option while it is loaded.
///
/// # Errors
/// The kernel's: there is no such module, or option.
pub fn set_option(module: &str, option: &str, value: &str) -> io::Result<()> {
    let path = format!("/sys/module/{module}/parameters/{option}");
    fs::write(&path, value).map_err(|error| io::Error::other(format!("{path}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_they_were_written() {
        for way in [Way::Type1, Way::Iommufd] {
            for (remaps_interrupts, address_bits) in [(true, 39), (false, 48)] {
                for task in [Task::Test, Task::Compare] {
                    let settings = Settings { way, iommu: Iommu { remaps_interrupts, address_bits }, task };
                    assert_eq!(Settings::find(&format!("quiet {settings} panic=-1\n")), Some(settings));
                }
            }
        }
        assert_eq!(Settings::find("quiet tentpeg=type2,none,39,test"), None);
    }
}
