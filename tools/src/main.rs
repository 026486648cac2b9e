//! tentpeg.
fn main() {}
