//! Memory as other programs allocate it: every kind that CUDA has.

use std::ffi::c_void;

use cudarc::driver::sys;

use crate::device_tests::Ending;

/// Memory of some kind, with what gives it back.
pub(super) struct Foreign {
    pub(super) address: u64,
    release: Box<dyn FnMut()>,
}

impl Drop for Foreign {
    fn drop(&mut self) {
        (self.release)();
    }
}

fn done(call: &str, result: sys::CUresult) -> Result<(), Ending> {
    match result {
        sys::CUresult::CUDA_SUCCESS => Ok(()),
        other => Err(Ending::Failed(format!("{call}: {other:?}"))),
    }
}

/// Makes the primary context of GPU 0 current in this thread: it is what a program with the runtime API has.
pub(super) fn enter() -> Result<(), Ending> {
    let mut context = std::ptr::null_mut();
    // SAFETY: `context` is writable; GPU 0 is there, as a rig is.
    unsafe {
        done("cuDevicePrimaryCtxRetain", sys::cuDevicePrimaryCtxRetain(&raw mut context, 0))?;
        done("cuCtxSetCurrent", sys::cuCtxSetCurrent(context))
    }
}

/// cuMemAllocManaged.
pub(super) fn managed(len: usize) -> Result<Foreign, Ending> {
    let mut address = 0;
    // SAFETY: `address` is writable; 1 is CU_MEM_ATTACH_GLOBAL.
    unsafe { done("cuMemAllocManaged", sys::cuMemAllocManaged(&raw mut address, len, 1)) }?;
    // SAFETY: allocated above, freed once.
    Ok(Foreign { address, release: Box::new(move || _ = unsafe { sys::cuMemFree_v2(address) }) })
}

/// cuMemAllocAsync, from the default pool.
pub(super) fn pooled(len: usize) -> Result<Foreign, Ending> {
    let mut address = 0;
    let stream = std::ptr::null_mut();
    // SAFETY: `address` is writable; a null stream is the default one.
    unsafe {
        done("cuMemAllocAsync", sys::cuMemAllocAsync(&raw mut address, len, stream))?;
        done("cuStreamSynchronize", sys::cuStreamSynchronize(stream))?;
    }
    // SAFETY: allocated above, freed once.
    Ok(Foreign { address, release: Box::new(move || _ = unsafe { sys::cuMemFree_v2(address) }) })
}

/// cuMemAllocHost.
pub(super) fn host(len: usize) -> Result<Foreign, Ending> {
    let mut base: *mut c_void = std::ptr::null_mut();
    // SAFETY: `base` is writable.
    unsafe { done("cuMemAllocHost", sys::cuMemAllocHost_v2(&raw mut base, len)) }?;
    let address = base.addr() as u64;
    // SAFETY: allocated above, freed once.
    Ok(Foreign { address, release: Box::new(move || _ = unsafe { sys::cuMemFreeHost(base) }) })
}

/// A reservation with room for `pieces` pieces of 2 MiB, of which those in `mapped` have memory, that other devices may
/// reach or not.
pub(super) fn reserved(pieces: usize, mapped: &[usize], rdma: bool) -> Result<Foreign, Ending> {
    const PIECE: usize = 2 << 20;
    let location = sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
    let access = sys::CUmemAccessDesc { location, flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    // SAFETY: a structure of numbers and pointers, of which zero is the default.
    let mut properties: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
    properties.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = location;
    properties.allocFlags.gpuDirectRDMACapable = u8::from(rdma);
    let (mut address, len) = (0, pieces * PIECE);
    // SAFETY: what is written to is writable; the pieces lie in the reservation.
    unsafe {
        done("cuMemAddressReserve", sys::cuMemAddressReserve(&raw mut address, len, PIECE, 0, 0))?;
        for piece in mapped {
            let (mut handle, at) = (0, address + (piece * PIECE) as u64);
            done("cuMemCreate", sys::cuMemCreate(&raw mut handle, PIECE, &raw const properties, 0))?;
            done("cuMemMap", sys::cuMemMap(at, PIECE, 0, handle, 0))?;
            done("cuMemSetAccess", sys::cuMemSetAccess(at, PIECE, &raw const access, 1))?;
            done("cuMemRelease", sys::cuMemRelease(handle))?;
        }
    }
    let mapped = mapped.to_vec();
    let release = move || {
        for piece in &mapped {
            // SAFETY: mapped above, unmapped once.
            let _ = unsafe { sys::cuMemUnmap(address + (piece * PIECE) as u64, PIECE) };
        }
        // SAFETY: reserved above, freed once.
        let _ = unsafe { sys::cuMemAddressFree(address, len) };
    };
    Ok(Foreign { address, release: Box::new(release) })
}
