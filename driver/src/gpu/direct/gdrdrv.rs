//! What gdrdrv is asked for: by the requests of its `gdrdrv.h`, version 2.5 and newer.
//!
//! Each pin has an open file of its own: its duplicate, which a keeper holds, keeps this pin and no other.

use std::ffi::{c_ulong, c_void};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;

use super::bar::{BarMapping, last_errno};
use crate::gpu::ladder::{Gdrdrv, GdrdrvVersion};

/// The device file.
const PATH: &str = "/dev/gdrdrv";
/// The oldest that can be asked whether its mappings persist (GDRDRV_MINIMUM_VERSION_WITH_GET_ATTR), and pins by
/// [`PIN_BUFFER_V2`].
pub(in crate::gpu) const GDRDRV_WITH_ATTRIBUTES: GdrdrvVersion = GdrdrvVersion { major: 2, minor: 5 };

/// `_IOWR(0xDA, number, size)`.
const fn gdrdrv_request(number: c_ulong, size: usize) -> c_ulong {
    3 << 30 | (size as c_ulong) << 16 | 0xDA << 8 | number
}
// The header names a pointer for the type of all but one of them.
const UNPIN_BUFFER: c_ulong = gdrdrv_request(2, size_of::<*const c_void>());
const GET_ATTRIBUTE: c_ulong = gdrdrv_request(6, size_of::<*const c_void>());
const PIN_BUFFER_V2: c_ulong = gdrdrv_request(7, size_of::<PinBuffer>());
const GET_VERSION: c_ulong = gdrdrv_request(255, size_of::<*const c_void>());
/// GDRDRV_ATTR_USE_PERSISTENT_MAPPING.
const PERSISTENT_MAPPING: u32 = 1;

/// `struct GDRDRV_IOC_PIN_BUFFER_V2_PARAMS`.
#[repr(C)]
#[derive(Default)]
struct PinBuffer {
    addr: u64,
    size: u64,
    flags: u32,
    pad: u32,
    handle: u64,
}

const _: () = assert!(size_of::<PinBuffer>() == 32);

/// Asks what it is.
pub(in crate::gpu) fn ask() -> Result<Gdrdrv, i32> {
    ask_file(&open(PATH)?)
}

/// Pins and maps `len` bytes of GPU memory at `address`, whole GPU pages.
pub(in crate::gpu) fn pin(address: u64, len: u64) -> Result<BarMapping, i32> {
    let file = open(PATH)?;
    let mut pin = PinBuffer { addr: address, size: len, ..PinBuffer::default() };
    request(&file, PIN_BUFFER_V2, &mut pin)?;
    BarMapping::of_pin(file, pin.handle, len)
}

/// Ends a pin. Where it is gone already there is nothing to end.
pub(super) fn unpin(file: &File, mut handle: u64) {
    let _ = request(file, UNPIN_BUFFER, &mut handle);
}

fn ask_file(file: &File) -> Result<Gdrdrv, i32> {
    // The version of the module, and the oldest of the library that it serves.
    let mut versions = [0u32; 2];
    request(file, GET_VERSION, &mut versions)?;
    let version = GdrdrvVersion { major: (versions[0] >> 16) as u16, minor: versions[0] as u16 };
    if version < GDRDRV_WITH_ATTRIBUTES {
        return Ok(Gdrdrv { version, persistent: None });
    }
    let mut attribute = [PERSISTENT_MAPPING, 0];
    request(file, GET_ATTRIBUTE, &mut attribute)?;
    Ok(Gdrdrv { version, persistent: Some(attribute[1] != 0) })
}

fn open(path: &str) -> Result<File, i32> {
    let opened = OpenOptions::new().read(true).write(true).open(path);
    opened.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
}

/// One ioctl with `argument`, which the driver may change.
fn request<T>(file: &File, number: c_ulong, argument: &mut T) -> Result<(), i32> {
    // SAFETY: the requests above are used with the structures that the header has for them, as large as there.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), number as _, std::ptr::from_mut(argument)) };
    if done < 0 { Err(last_errno()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_numbers_of_their_header() {
        // From C, with gdrdrv.h of version 2.6: GET_VERSION, GET_ATTR, PIN_BUFFER_V2, UNPIN_BUFFER.
        let numbers = (GET_VERSION, GET_ATTRIBUTE, PIN_BUFFER_V2, UNPIN_BUFFER);
        assert_eq!(numbers, (0xC008_DAFF, 0xC008_DA06, 0xC020_DA07, 0xC008_DA02));
    }

    #[test]
    fn a_file_that_is_not_there_or_another_one_is_its_errno() {
        assert_eq!(open("/nowhere/gdrdrv").unwrap_err(), libc::ENOENT);
        let file = tempfile::tempfile().unwrap();
        assert_eq!(ask_file(&file), Err(libc::ENOTTY));
        unpin(&file, 7);
        let refused = BarMapping::of_pin(tempfile::tempfile().unwrap(), u64::MAX, 4096).unwrap_err();
        assert_eq!(refused, libc::EINVAL, "no offset of a file is so large");
    }
}
