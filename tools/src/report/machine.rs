//! The machine that a run was made on, as far as Linux tells (proc(5)). Its name is left out: a page is passed on.

use std::{fs, thread};

use super::{Row, Value};

/// A machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// What its processors are called.
    pub processor: Option<String>,
    /// Processors that this process may use.
    pub cores: Option<usize>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// The release of its kernel.
    pub kernel: Option<String>,
}

impl Machine {
    /// This one.
    pub fn this() -> Self {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        Self {
            processor: processor(&text("/proc/cpuinfo")),
            cores: thread::available_parallelism().ok().map(usize::from),
            memory: memory(&text("/proc/meminfo")),
            kernel: Some(text("/proc/sys/kernel/osrelease").trim().to_owned()).filter(|release| !release.is_empty()),
        }
    }

    /// How a page shows it.
    pub(super) fn rows(&self) -> Vec<Row> {
        let text = |label, text: &Option<String>| Some(Row::table(label, Value::Text(text.clone()?)));
        let rows = [
            text("processor", &self.processor),
            self.cores.map(|cores| Row::table("cores to use", Value::Count(cores as u64))),
            self.memory.map(|bytes| Row::table("memory", Value::Bytes(bytes))),
            text("kernel", &self.kernel),
        ];
        rows.into_iter().flatten().collect()
    }
}

fn processor(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned()).filter(|name| !name.is_empty())
}

fn memory(meminfo: &str) -> Option<u64> {
    let kibibytes = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"))?;
    kibibytes.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_linux_tells_is_read_and_what_it_does_not_is_left_out() {
        assert_eq!(processor("processor\t: 0\nmodel name\t: A: b 3\nmodel name\t: C\n").as_deref(), Some("A: b 3"));
        assert_eq!((processor("model name:\n"), processor("Features : fp\n")), (None, None));
        assert_eq!(memory("MemTotal:       2048 kB\nMemFree: 1 kB\n"), Some(2 << 20));
        assert_eq!((memory("MemTotal: x kB\n"), memory("MemFree: 1 kB\n")), (None, None));
        assert_eq!(memory(&format!("MemTotal: {} kB", u64::MAX)), None);
        assert_eq!(Machine::default().rows(), []);
        let this = Machine::this();
        assert!(this.cores.unwrap() >= 1 && this.memory.unwrap() > 1 << 20 && this.kernel.is_some());
        assert!(this.rows().len() >= 3);
    }
}
