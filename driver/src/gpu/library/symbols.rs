//! The functions of the driver library that are used, each resolved before any is called.
//!
//! Signatures are those of cuda.h for CUDA 12.0, with results and enumerations as plain numbers: what a newer driver
//! answers is then a number too.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use cudarc::driver::sys::{CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUmodule, CUstream};
use libloading::Library;

macro_rules! symbols {
    ($($name:ident($($argument:ty),*);)*) => {
        /// The functions, by their names in the library.
        #[allow(non_snake_case)]
        pub(in crate::gpu) struct Symbols {
            $(pub(in crate::gpu) $name: unsafe extern "C" fn($($argument),*) -> u32,)*
        }

        impl Symbols {
            /// The names, in the order in which they are resolved.
            #[cfg(test)]
            pub(in crate::gpu) const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// Resolves all of them, or names the first that is missing.
            pub(super) fn resolve(library: &Library) -> Result<Self, &'static str> {
                Ok(Self {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        // SAFETY: the signature is that of this name in cuda.h.
                        let symbol = unsafe { library.get::<unsafe extern "C" fn($($argument),*) -> u32>(name.as_bytes()) };
                        *symbol.map_err(|_| stringify!($name))?
                    },)*
                })
            }
        }
    };
}

symbols! {
    cuInit(c_uint);
    cuDriverGetVersion(*mut c_int);
    cuGetErrorName(u32, *mut *const c_char);
    cuDeviceGetCount(*mut c_int);
    cuDeviceGet(*mut CUdevice, c_int);
    cuDeviceGetName(*mut c_char, c_int, CUdevice);
    cuDeviceGetAttribute(*mut c_int, u32, CUdevice);
    cuDeviceGetPCIBusId(*mut c_char, c_int, CUdevice);
    cuDeviceTotalMem_v2(*mut usize, CUdevice);
    cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice);
    cuDevicePrimaryCtxRelease_v2(CUdevice);
    cuCtxPushCurrent_v2(CUcontext);
    cuCtxPopCurrent_v2(*mut CUcontext);
    cuPointerGetAttributes(c_uint, *mut u32, *mut *mut c_void, CUdeviceptr);
    cuMemGetAddressRange_v2(*mut CUdeviceptr, *mut usize, CUdeviceptr);
    cuMemAlloc_v2(*mut CUdeviceptr, usize);
    cuMemFree_v2(CUdeviceptr);
    cuMemHostRegister_v2(*mut c_void, usize, c_uint);
    cuMemHostUnregister(*mut c_void);
    cuMemcpyAsync(CUdeviceptr, CUdeviceptr, usize, CUstream);
    cuMemcpyHtoD_v2(CUdeviceptr, *const c_void, usize);
    cuMemsetD8Async(CUdeviceptr, u8, usize, CUstream);
    cuStreamCreate(*mut CUstream, c_uint);
    cuStreamDestroy_v2(CUstream);
    cuStreamSynchronize(CUstream);
    cuStreamQuery(CUstream);
    cuEventSynchronize(CUevent);
    cuStreamWriteValue32_v2(CUstream, CUdeviceptr, u32, c_uint);
    cuModuleLoadData(*mut CUmodule, *const c_void);
    cuModuleUnload(CUmodule);
    cuModuleGetFunction(*mut CUfunction, CUmodule, *const c_char);
    cuLaunchKernel(
        CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void, *mut *mut c_void
    );
    cuMemGetHandleForAddressRange(*mut c_void, CUdeviceptr, usize, u32, c_ulonglong);
    cuFlushGPUDirectRDMAWrites(u32, u32);
}
