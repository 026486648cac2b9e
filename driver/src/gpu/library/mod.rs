//! The CUDA driver library, loaded at run time.
//!
//! cudarc has the names under which the library is looked for, and CUDA's types and constants. Its own functions are
//! not called: they panic where the library or a symbol is missing, and give a result that is newer than they are a
//! type that it does not fit. So every symbol is resolved here, before the first call, with results as plain numbers.
//!
//! Once loaded, the library stays: it has threads of its own.

mod symbols;

use std::error::Error;
use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::{Arc, OnceLock};

use libloading::Library;
use thiserror::Error;

use super::error::{CudaError, code};
pub(super) use symbols::Symbols;

/// The oldest driver that has every function used here.
const OLDEST: CudaVersion = CudaVersion(12_000);

/// A version of CUDA as cuDriverGetVersion gives it: 1000 * major + 10 * minor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CudaVersion(pub u32);

impl fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 / 1000, self.0 % 1000 / 10)
    }
}

/// The names that are tried first, and how many more there are, in words.
fn the_first_of(tried: &[String]) -> String {
    const SHOWN: usize = 2;
    match tried.len().checked_sub(SHOWN) {
        None | Some(0) => tried.join(", "),
        Some(more) => format!("{}, and {more} more", tried[..SHOWN].join(", ")),
    }
}

/// Why there is no CUDA here. The host is at fault.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LibraryError {
    /// There is no such library.
    #[error(
        "no CUDA driver library: none of {} could be loaded ({reason}); install NVIDIA's driver, or name the folder of \
         libcuda.so.1 in LD_LIBRARY_PATH",
        the_first_of(tried)
    )]
    Missing {
        /// The names that were tried.
        tried: Vec<String>,
        /// What the dynamic loader said of the most telling one.
        reason: String,
    },
    /// The library lacks a function.
    #[error(
        "{library} has no {symbol}: it is no CUDA driver library, or older than CUDA {OLDEST}; install a newer driver"
    )]
    Symbol {
        /// The library.
        library: String,
        /// The function.
        symbol: &'static str,
    },
    /// The library is the one that programs are linked against, not the driver's.
    #[error(
        "{library} is a stub for linking: remove its folder from LD_LIBRARY_PATH, so that the driver's own is found"
    )]
    Stub {
        /// The library.
        library: String,
    },
    /// The driver is too old.
    #[error("the driver has CUDA {have}, and this needs {need}: install a newer driver")]
    DriverTooOld {
        /// What the driver has.
        have: CudaVersion,
        /// What it would have to have.
        need: CudaVersion,
    },
    /// There is a driver and no GPU.
    #[error("the driver knows no GPU: look at nvidia-smi, and at CUDA_VISIBLE_DEVICES")]
    NoDevice,
    /// This process may not use the GPU.
    #[error("this process may not use the GPU ({source}): it needs read and write access to /dev/nvidia*")]
    NotPermitted {
        /// What CUDA said.
        source: CudaError,
    },
    /// There are fewer GPUs.
    #[error("there is no GPU {ordinal}: the driver shows {count}, numbered from 0")]
    NoSuchDevice {
        /// The number asked for.
        ordinal: u32,
        /// How many there are.
        count: u32,
    },
    /// Something else.
    #[error(transparent)]
    Call(#[from] CudaError),
}

/// The CUDA driver library, initialised. Every call goes through it.
pub struct Cuda {
    pub(super) symbols: Symbols,
    name: String,
    version: CudaVersion,
    _library: ManuallyDrop<Library>,
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cuda({}, {})", self.name, self.version)
    }
}

impl Cuda {
    /// The library of this process: loaded and initialised by the first call, the same for each later one. A failure is
    /// not kept, so that it can be mended while the process lives.
    ///
    /// # Errors
    /// [`LibraryError`].
    pub fn load() -> Result<Arc<Self>, LibraryError> {
        static LOADED: OnceLock<Arc<Cuda>> = OnceLock::new();
        if let Some(cuda) = LOADED.get() {
            return Ok(Arc::clone(cuda));
        }
        let cuda = Arc::new(Self::open(&candidates())?);
        Ok(Arc::clone(LOADED.get_or_init(|| cuda)))
    }

    /// Loads the first library of these names that can be loaded, and initialises it.
    pub(super) fn open(names: &[String]) -> Result<Self, LibraryError> {
        let (name, library) = first_library(names)?;
        let symbols =
            Symbols::resolve(&library).map_err(|symbol| LibraryError::Symbol { library: name.clone(), symbol })?;
        let cuda = Self { symbols, version: CudaVersion(0), name, _library: ManuallyDrop::new(library) };
        cuda.initialise()
    }

    fn initialise(mut self) -> Result<Self, LibraryError> {
        let mut version: c_int = 0;
        // SAFETY: `version` is writable; this call needs no initialisation.
        self.check("cuDriverGetVersion", unsafe { (self.symbols.cuDriverGetVersion)(&raw mut version) })?;
        self.version = CudaVersion(u32::try_from(version).unwrap_or(0));
        self.require(OLDEST)?;
        // SAFETY: 0 is the only value of the flags.
        match self.check("cuInit", unsafe { (self.symbols.cuInit)(0) }) {
            Ok(()) => Ok(self),
            Err(source) => Err(match source.code {
                code::STUB_LIBRARY => LibraryError::Stub { library: self.name },
                code::NO_DEVICE => LibraryError::NoDevice,
                code::NOT_PERMITTED | code::OPERATING_SYSTEM => LibraryError::NotPermitted { source },
                _ => source.into(),
            }),
        }
    }

    /// The library's name, as it was loaded.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The newest CUDA that the driver knows.
    pub fn version(&self) -> CudaVersion {
        self.version
    }

    /// Refuses a driver that is older than `need`.
    pub(super) fn require(&self, need: CudaVersion) -> Result<(), LibraryError> {
        if self.version < need {
            return Err(LibraryError::DriverTooOld { have: self.version, need });
        }
        Ok(())
    }

    /// How many GPUs there are.
    ///
    /// # Errors
    /// [`CudaError`].
    pub fn device_count(&self) -> Result<u32, CudaError> {
        let mut count: c_int = 0;
        // SAFETY: `count` is writable.
        self.check("cuDeviceGetCount", unsafe { (self.symbols.cuDeviceGetCount)(&raw mut count) })?;
        Ok(u32::try_from(count).unwrap_or(0))
    }

    /// The error of a CUresult, unless it is 0.
    pub(super) fn check(&self, call: &'static str, code: u32) -> Result<(), CudaError> {
        if code == 0 { Ok(()) } else { Err(self.error(call, code)) }
    }

    #[cold]
    pub(super) fn error(&self, call: &'static str, code: u32) -> CudaError {
        let mut name: *const c_char = std::ptr::null();
        // SAFETY: `name` is writable; it becomes a string that lives as long as the library, or stays null.
        let named = unsafe { (self.symbols.cuGetErrorName)(code, &raw mut name) };
        let name = if named == 0 && !name.is_null() {
            // SAFETY: CUDA's strings end in zero and are never freed.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        } else {
            "an error without a name".to_owned()
        };
        CudaError { call, code, name }
    }
}

/// The names under which the driver library is looked for, the driver's own first: `libcuda.so` alone may be a stub.
fn candidates() -> Vec<String> {
    let mut names = vec!["libcuda.so.1".to_owned()];
    names.extend(cudarc::get_lib_name_candidates("cuda").into_iter().filter(|name| *name != "libcuda.so.1"));
    names
}

/// The first library that can be loaded. Of the failures, one of a file that exists is told rather than that of one
/// that does not.
fn first_library(names: &[String]) -> Result<(String, Library), LibraryError> {
    let (mut reason, mut told) = ("no name to try".to_owned(), false);
    for (place, name) in names.iter().enumerate() {
        // SAFETY: the names are those of NVIDIA's driver library, whose initialisers are sound to run at any time.
        match unsafe { Library::new(name) } {
            Ok(library) => return Ok((name.clone(), library)),
            Err(error) => {
                let text = error.source().map_or_else(|| error.to_string(), ToString::to_string);
                let telling = !(text.starts_with(&format!("{name}:")) && text.contains("No such file"));
                if place == 0 || telling && !told {
                    (reason, told) = (text, telling);
                }
            }
        }
    }
    Err(LibraryError::Missing { tried: names.to_vec(), reason })
}

#[cfg(test)]
pub(super) mod tests;
