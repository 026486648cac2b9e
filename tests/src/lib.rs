//! What Tentpeg's tests share: the list of device tests, the order of the house, and the workloads whose instructions
//! are counted.

pub mod architecture;
pub mod chaos;
pub mod device_tests;
pub mod instructions;
