//! What Tentpeg's tests share: the list of device tests, the order of the house, chaos, the randomised test of segments,
//! the one of processes that are killed, hardware in the loop, the bodies of the fuzz targets, and the workloads whose instructions are counted.

pub mod architecture;
pub mod chaos;
pub mod crash;
pub mod device_tests;
pub mod fuzz;
pub mod gpu;
pub mod guest;
pub mod hil;
pub mod instructions;
mod own_memory;
pub mod segments;
