//! A userspace NVMe driver.

pub mod spec;
