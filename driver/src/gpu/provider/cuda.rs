//! CUDA's own answers about addresses.

use std::ffi::{c_uint, c_void};

use cudarc::driver::sys::{CUdeviceptr, CUpointer_attribute_enum as Attribute};

use super::{PointerAttributes, PointerQueries};
use crate::gpu::device::Gpu;
use crate::gpu::error::CudaError;

/// What is asked, in one call.
const ASKED: [u32; 9] = [
    Attribute::CU_POINTER_ATTRIBUTE_CONTEXT as u32,
    Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE as u32,
    Attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID as u32,
    Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED as u32,
    Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL as u32,
    Attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE as u32,
    Attribute::CU_POINTER_ATTRIBUTE_MAPPING_SIZE as u32,
    Attribute::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR as u32,
    Attribute::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE as u32,
];

impl PointerQueries for Gpu {
    fn attributes(&self, address: u64) -> Result<PointerAttributes, CudaError> {
        // CUDA writes 1, 4 or 8 bytes of each; the rest stays zero, and both architectures are little-endian.
        const { assert!(cfg!(target_endian = "little")) };
        let mut answers = [0u64; ASKED.len()];
        let mut asked = ASKED;
        let mut places = answers.each_mut().map(|answer| std::ptr::from_mut(answer).cast::<c_void>());
        let _entered = self.enter()?;
        // SAFETY: `asked` and `places` have as many entries as are said, each place has the 8 bytes that are the most
        // that an attribute takes; the address is only looked up.
        let code = unsafe {
            (self.cuda().symbols.cuPointerGetAttributes)(
                ASKED.len() as c_uint,
                asked.as_mut_ptr(),
                places.as_mut_ptr(),
                address as CUdeviceptr,
            )
        };
        self.cuda().check("cuPointerGetAttributes", code)?;
        let [context, memory_type, buffer_id, managed, device, pool, mapping_len, mapping_base, rdma] = answers;
        Ok(PointerAttributes {
            memory_type: memory_type as u32,
            buffer_id,
            managed: managed != 0,
            device: device as u32 as i32,
            pool: pool != 0,
            has_context: context != 0,
            mapping_len,
            mapping_base,
            rdma_capable: rdma != 0,
        })
    }

    fn address_range(&self, address: u64) -> Result<(u64, u64), CudaError> {
        let (mut base, mut len): (CUdeviceptr, usize) = (0, 0);
        let _entered = self.enter()?;
        // SAFETY: both are writable; the address is only looked up.
        let code = unsafe {
            (self.cuda().symbols.cuMemGetAddressRange_v2)(&raw mut base, &raw mut len, address as CUdeviceptr)
        };
        self.cuda().check("cuMemGetAddressRange", code)?;
        Ok((base, len as u64))
    }
}
