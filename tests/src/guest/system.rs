//! What the first process of a guest does for the kernel: file systems, modules, power.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use tentpeg_driver::vfio::Way;

/// What stands before the way, on the command line of the guest's kernel.
pub(super) const WAY: &str = "tentpeg.way=";

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

/// What the host says by the kernel's command line: by what functions are to be opened.
///
/// # Errors
/// It says nothing that is known.
pub fn way() -> io::Result<Way> {
    let line = fs::read_to_string("/proc/cmdline")?;
    let said = line.split_whitespace().find_map(|word| word.strip_prefix(WAY));
    match said {
        Some("type1") => Ok(Way::Type1),
        Some("iommufd") => Ok(Way::Iommufd),
        _ => Err(io::Error::other(format!("no {WAY}type1 or {WAY}iommufd on the kernel's command line: {line}"))),
    }
}

/// Loads the modules of a folder, in the order that the file `order` in it names them. A kernel that has all built in
/// comes without the folder.
///
/// # Errors
/// The kernel's, with the module.
pub fn load_modules(folder: &Path) -> io::Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    for name in fs::read_to_string(folder.join("order"))?.lines() {
        load_module(&File::open(folder.join(name))?, "")
            .map_err(|error| io::Error::other(format!("module {name}: {error}")))?;
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
