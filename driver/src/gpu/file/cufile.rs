//! cuFile, loaded at run time.
//!
//! Names and structures are those of cufile.h (CUDA 11.6 and newer), with results and enumerations as plain numbers, for the
//! reasons that the CUDA library has here. Once loaded it stays.

use std::error::Error;
use std::ffi::{c_int, c_uint, c_void};
use std::fs::File;
use std::mem::{ManuallyDrop, offset_of};
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

use libloading::Library;

use super::{FileRead, FileWayError, Reads};
use crate::gpu::device::Gpu;
use crate::gpu::memory::GpuMemory;

/// CUfileError_t.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Answer {
    err: u32,
    cu_err: u32,
}

/// CUfileDescr_t of a file descriptor.
#[repr(C)]
struct Descriptor {
    kind: u32,
    // What follows is a union with a pointer.
    padding: u32,
    fd: c_int,
    rest: u32,
    fs_ops: *const c_void,
}

/// CUfileIOParams_t of a batch.
#[repr(C)]
#[derive(Clone, Copy)]
struct Parameters {
    mode: u32,
    base: *mut c_void,
    file_offset: i64,
    memory_offset: i64,
    size: usize,
    handle: *mut c_void,
    opcode: u32,
    cookie: usize,
}

/// CUfileIOEvents_t.
#[repr(C)]
#[derive(Clone, Copy)]
struct Event {
    cookie: usize,
    status: u32,
    ret: usize,
}

const _: () = assert!(
    size_of::<Answer>() == 8
        && size_of::<Descriptor>() == 24
        && offset_of!(Descriptor, fd) == 8
        && offset_of!(Parameters, handle) == 40
        && offset_of!(Event, ret) == 16
        && size_of::<Parameters>() == 64
        && size_of::<Event>() == 24
);

/// CU_FILE_HANDLE_TYPE_OPAQUE_FD.
const OPAQUE_FD: u32 = 1;
/// CUFILE_BATCH and CUFILE_READ.
const BATCH: u32 = 1;
const READ: u32 = 0;
/// CUFILE_COMPLETE.
const COMPLETE: u32 = 0x10;

macro_rules! cufile {
    ($($name:ident($($argument:ty),*) -> $answer:ty;)*) => {
        #[allow(non_snake_case)]
        struct Symbols {
            $($name: unsafe extern "C" fn($($argument),*) -> $answer,)*
        }

        impl Symbols {
            fn resolve(library: &Library) -> Result<Self, &'static str> {
                Ok(Self {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        // SAFETY: the signature is that of this name in cufile.h.
                        let symbol = unsafe { library.get::<unsafe extern "C" fn($($argument),*) -> $answer>(name.as_bytes()) };
                        *symbol.map_err(|_| stringify!($name))?
                    },)*
                })
            }
        }
    };
}

cufile! {
    cuFileDriverOpen() -> Answer;
    cuFileHandleRegister(*mut *mut c_void, *mut Descriptor) -> Answer;
    cuFileHandleDeregister(*mut c_void) -> ();
    cuFileBufRegister(*const c_void, usize, c_int) -> Answer;
    cuFileBufDeregister(*const c_void) -> Answer;
    cuFileRead(*mut c_void, *mut c_void, usize, i64, i64) -> isize;
    cuFileBatchIOSetUp(*mut *mut c_void, c_uint) -> Answer;
    cuFileBatchIOSubmit(*mut c_void, c_uint, *mut Parameters, c_uint) -> Answer;
    cuFileBatchIOGetStatus(*mut c_void, c_uint, *mut c_uint, *mut Event, *mut c_void) -> Answer;
    cuFileBatchIODestroy(*mut c_void) -> ();
}

/// The library, its driver open.
struct Cufile {
    symbols: Symbols,
    _library: ManuallyDrop<Library>,
}

impl Cufile {
    /// That of this process, opened by the first call.
    fn load(gpu: &Gpu) -> Result<&'static Self, FileWayError> {
        static LOADED: OnceLock<Cufile> = OnceLock::new();
        if let Some(cufile) = LOADED.get() {
            return Ok(cufile);
        }
        let mut names = vec!["libcufile.so.0".to_owned()];
        names.extend(cudarc::get_lib_name_candidates("cufile"));
        let cufile = Self::open(&names)?;
        // It opens the GPU of the context that is current.
        let _entered = gpu.enter()?;
        // SAFETY: no argument; CUDA is initialised.
        check("cuFileDriverOpen", unsafe { (cufile.symbols.cuFileDriverOpen)() })?;
        Ok(LOADED.get_or_init(|| cufile))
    }

    /// The first of these libraries that can be loaded.
    fn open(names: &[String]) -> Result<Self, FileWayError> {
        let mut reason = "no name to try".to_owned();
        for (place, name) in names.iter().enumerate() {
            // SAFETY: the names are those of NVIDIA's library, whose initialisers are sound to run at any time.
            match unsafe { Library::new(name) } {
                Ok(library) => {
                    let symbols = Symbols::resolve(&library)
                        .map_err(|symbol| FileWayError::CufileSymbol { library: name.clone(), symbol })?;
                    return Ok(Self { symbols, _library: ManuallyDrop::new(library) });
                }
                Err(error) if place == 0 => {
                    reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
                }
                Err(_) => {}
            }
        }
        Err(FileWayError::NoCufile { tried: names.to_vec(), reason })
    }
}

fn check(call: &'static str, answer: Answer) -> Result<(), FileWayError> {
    match answer {
        Answer { err: 0, .. } => Ok(()),
        Answer { err, cu_err } => Err(FileWayError::Cufile { call, code: err, cuda: cu_err }),
    }
}

/// A file and memory that cuFile knows.
struct Known {
    cufile: &'static Cufile,
    handle: *mut c_void,
    memory: *mut c_void,
    _file: File,
}

// SAFETY: cuFile's handles may be used from any thread; the address is the GPU's.
unsafe impl Send for Known {}
// SAFETY: as above.
unsafe impl Sync for Known {}

impl Known {
    fn new(file: File, memory: &GpuMemory) -> Result<Self, FileWayError> {
        let cufile = Cufile::load(memory.gpu())?;
        let mut descriptor =
            Descriptor { kind: OPAQUE_FD, padding: 0, fd: file.as_raw_fd(), rest: 0, fs_ops: std::ptr::null() };
        let mut handle = std::ptr::null_mut();
        let _entered = memory.gpu().enter()?;
        // SAFETY: both are writable; the file stays open as long as the handle is there.
        check("cuFileHandleRegister", unsafe {
            (cufile.symbols.cuFileHandleRegister)(&raw mut handle, &raw mut descriptor)
        })?;
        let address: *mut c_void = std::ptr::without_provenance_mut(memory.address() as usize);
        let known = Self { cufile, handle, memory: address, _file: file };
        // SAFETY: memory of the GPU, which its owner keeps longer than this value.
        let registered = unsafe { (cufile.symbols.cuFileBufRegister)(address, memory.len(), 0) };
        check("cuFileBufRegister", registered).map(|()| known)
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        // SAFETY: registered in `new`, or not at all, which cuFile refuses; nothing is in flight.
        unsafe {
            let _ = (self.cufile.symbols.cuFileBufDeregister)(self.memory);
            (self.cufile.symbols.cuFileHandleDeregister)(self.handle);
        }
    }
}

/// cuFileRead, by threads.
pub(super) struct Threads {
    known: Known,
    threads: usize,
}

impl Threads {
    pub(super) fn new(file: File, memory: &GpuMemory, threads: u32) -> Result<Self, FileWayError> {
        Ok(Self { known: Known::new(file, memory)?, threads: threads.max(1) as usize })
    }
}

impl Reads for Threads {
    fn read(&mut self, memory: &GpuMemory, reads: &[FileRead]) -> Result<(), FileWayError> {
        let (known, gpu) = (&self.known, memory.gpu());
        let read = |part: &[FileRead]| -> Result<(), FileWayError> {
            let _entered = gpu.enter()?;
            for FileRead { offset, at, len } in part.iter().copied() {
                // SAFETY: the range lies in the registered memory, as the reader has checked, and the call waits.
                let result = unsafe {
                    (known.cufile.symbols.cuFileRead)(
                        known.handle,
                        known.memory,
                        len as usize,
                        offset as i64,
                        at as i64,
                    )
                };
                if result != len as isize {
                    return Err(FileWayError::Read { offset, len, result: result as i64 });
                }
            }
            Ok(())
        };
        super::host::in_parts(reads, self.threads, read)
    }
}

/// cuFile's batches.
pub(super) struct Batches {
    known: Known,
    batch: *mut c_void,
    parameters: Vec<Parameters>,
    events: Vec<Event>,
}

// SAFETY: a batch may be used from any thread, by one at a time.
unsafe impl Send for Batches {}

impl Batches {
    pub(super) fn new(file: File, memory: &GpuMemory, depth: u32) -> Result<Self, FileWayError> {
        let known = Known::new(file, memory)?;
        let mut batch = std::ptr::null_mut();
        let _entered = memory.gpu().enter()?;
        // SAFETY: `batch` is writable.
        check("cuFileBatchIOSetUp", unsafe { (known.cufile.symbols.cuFileBatchIOSetUp)(&raw mut batch, depth) })?;
        let events = vec![Event { cookie: 0, status: 0, ret: 0 }; depth.max(1) as usize];
        Ok(Self { known, batch, parameters: Vec::new(), events })
    }
}

impl Reads for Batches {
    fn read(&mut self, memory: &GpuMemory, reads: &[FileRead]) -> Result<(), FileWayError> {
        let Self { known, batch, parameters, events } = self;
        let symbols = &known.cufile.symbols;
        let _entered = memory.gpu().enter()?;
        let (mut begun, mut ended) = (0, 0);
        while ended < reads.len() {
            // A batch is submitted whole, and again when all of it has ended: parts of one that are submitted while others
            // are in flight were seen to hang.
            let group = if begun == ended { events.len().min(reads.len() - begun) } else { 0 };
            parameters.clear();
            parameters.extend((begun..).zip(&reads[begun..begun + group]).map(|(cookie, read)| Parameters {
                mode: BATCH,
                base: known.memory,
                file_offset: read.offset as i64,
                memory_offset: read.at as i64,
                size: read.len as usize,
                handle: known.handle,
                opcode: READ,
                cookie,
            }));
            if group > 0 {
                // SAFETY: as many parameters as are said; the ranges lie in the registered memory.
                let submitted =
                    unsafe { (symbols.cuFileBatchIOSubmit)(*batch, group as c_uint, parameters.as_mut_ptr(), 0) };
                check("cuFileBatchIOSubmit", submitted)?;
                begun += group;
            }
            let mut count = events.len() as c_uint;
            // SAFETY: room for as many events as are said; no time limit.
            let asked = unsafe {
                (symbols.cuFileBatchIOGetStatus)(*batch, 1, &raw mut count, events.as_mut_ptr(), std::ptr::null_mut())
            };
            check("cuFileBatchIOGetStatus", asked)?;
            for event in events.iter().take(count as usize) {
                let read = reads.get(event.cookie).copied().unwrap_or(FileRead { offset: 0, at: 0, len: 0 });
                if event.status != COMPLETE || event.ret as u64 != read.len {
                    let result = if event.status == COMPLETE { event.ret as i64 } else { -i64::from(event.status) };
                    return Err(FileWayError::Read { offset: read.offset, len: read.len, result });
                }
                ended += 1;
            }
        }
        Ok(())
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        // SAFETY: set up in `new`; it waits for what is in flight.
        unsafe { (self.known.cufile.symbols.cuFileBatchIODestroy)(self.batch) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_and_one_that_is_another_are_told() {
        let missing = Cufile::open(&["libtentpeg-no-such.so.0".to_owned()]).err().unwrap();
        assert!(matches!(&missing, FileWayError::NoCufile { tried, .. } if tried.len() == 1), "{missing}");
        assert!(missing.to_string().contains("install NVIDIA's GPUDirect Storage"), "{missing}");
        let other = Cufile::open(&["libc.so.6".to_owned()]).err().unwrap();
        assert!(matches!(other, FileWayError::CufileSymbol { symbol: "cuFileDriverOpen", .. }), "{other}");
    }
}
