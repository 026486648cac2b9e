//! How much memory this process has resident, as the kernel counts it (proc_pid_status(5)).

use std::fs;

/// Memory of this process in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident {
    /// Now (`VmRSS`).
    pub now: u64,
    /// The most so far (`VmHWM`).
    pub peak: u64,
}

impl Resident {
    /// Of this process. `None` where the kernel does not say.
    pub fn of_this_process() -> Option<Self> {
        Self::of_status(&fs::read_to_string("/proc/self/status").ok()?)
    }

    fn of_status(status: &str) -> Option<Self> {
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
        };
        Some(Self { now: bytes("VmRSS")?, peak: bytes("VmHWM")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_read() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t       4 kB\n";
        assert_eq!(Resident::of_status(status), Some(Resident { now: 4096, peak: 2 << 20 }));
        assert_eq!(Resident::of_status("VmHWM:\t 2048 kB\n"), None, "one is missing");
        assert_eq!(Resident::of_status("VmHWM: x kB\nVmRSS: 1 kB\n"), None);
        let own = Resident::of_this_process().unwrap();
        assert!(own.now > 0 && own.now <= own.peak);
    }
}
