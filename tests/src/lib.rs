//! What Tentpeg's tests share: the workloads whose instructions are counted.

pub mod instructions;
