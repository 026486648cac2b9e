//! NVIDIA's management library, for what CUDA does not say: how much of BAR1 is free, and which release the driver is.
//!
//! Loaded when it is asked and let go again; where it is not there, or refuses, there is no answer and no error: nothing
//! rests on it.

use std::ffi::{CString, c_char, c_void};

use libloading::Library;

/// What the management library says of a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuManagement {
    /// The driver's release: `580.159.04`.
    pub driver: String,
    /// Bytes of BAR1.
    pub bar1_total: u64,
    /// Of these, those that are not mapped.
    pub bar1_free: u64,
}

/// nvmlBAR1Memory_t.
#[repr(C)]
#[derive(Default)]
struct Bar1 {
    total: u64,
    free: u64,
    used: u64,
}

type Plain = unsafe extern "C" fn() -> u32;
type ByAddress = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> u32;
type Bar1Of = unsafe extern "C" fn(*mut c_void, *mut Bar1) -> u32;
type DriverVersion = unsafe extern "C" fn(*mut c_char, u32) -> u32;

/// Asks about the GPU at a PCI address, as the kernel writes it.
pub fn management(pci_address: &str) -> Option<GpuManagement> {
    let address = CString::new(pci_address).ok()?;
    // SAFETY: NVIDIA's library, whose initialisers are sound to run at any time.
    let library = unsafe { Library::new("libnvidia-ml.so.1") }.ok()?;
    // SAFETY: each signature is that of its name in nvml.h; the library outlives the calls.
    unsafe {
        let init = library.get::<Plain>(b"nvmlInit_v2\0").ok()?;
        let shutdown = library.get::<Plain>(b"nvmlShutdown\0").ok()?;
        let by_address = library.get::<ByAddress>(b"nvmlDeviceGetHandleByPciBusId_v2\0").ok()?;
        let bar1_of = library.get::<Bar1Of>(b"nvmlDeviceGetBAR1MemoryInfo\0").ok()?;
        let driver_version = library.get::<DriverVersion>(b"nvmlSystemGetDriverVersion\0").ok()?;
        if init() != 0 {
            return None;
        }
        let (mut device, mut bar1, mut text) = (std::ptr::null_mut(), Bar1::default(), [0u8; 96]);
        let answered = by_address(address.as_ptr(), &raw mut device) == 0
            && bar1_of(device, &raw mut bar1) == 0
            && driver_version(text.as_mut_ptr().cast(), text.len() as u32) == 0;
        shutdown();
        let driver = text.split(|byte| *byte == 0).next().unwrap_or_default();
        let driver = String::from_utf8_lossy(driver).into_owned();
        answered.then_some(GpuManagement { driver, bar1_total: bar1.total, bar1_free: bar1.free })
    }
}
