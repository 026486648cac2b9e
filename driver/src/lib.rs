//! A userspace NVMe driver.
