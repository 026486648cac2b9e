//! The guest's machine: QEMU with an IOMMU, controllers, and a function with memory, emulated in software.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::drives::{self, Drive, Format, SLOTS};
use super::monitor::Monitor;
use super::report::{Wish, wishes};
use super::system::{Iommu, Settings};

/// The file that a namespace is kept in: of controller `drive`, from 0 on, the namespace `nsid`, from 1 on.
pub fn image(folder: &Path, drive: usize, nsid: usize) -> PathBuf {
    folder.join(format!("drive{drive}.{nsid}"))
}

/// Where the function with memory is, as QEMU's trace names it, and where the first controller is, behind which the
/// others follow.
pub const MEMORY: &str = "00:04.0";
/// See [`MEMORY`].
pub const CONTROLLER: &str = "00:05.0";

/// A machine that is to run once.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The kernel.
    pub kernel: PathBuf,
    /// What its program is told.
    pub settings: Settings,
    /// The archive that holds the guest's userspace.
    pub initramfs: PathBuf,
    /// Its controllers, in the order of their addresses. The last are each in a slot of their own.
    pub drives: Vec<Drive>,
    /// The folder with the [images](image) of their namespaces, whose lengths are their capacities.
    pub images: PathBuf,
    /// What the memory of the other function is kept in.
    pub bar: PathBuf,
    /// Its length in bytes, a power of two.
    pub bar_bytes: u64,
    /// Where the report is to be written.
    pub report: PathBuf,
    /// The socket by which QEMU is told what the guest wishes for.
    pub monitor: PathBuf,
    /// Which of QEMU's events are traced.
    pub traced: &'static [&'static str],
    /// Where QEMU writes what is [traced](super::trace).
    pub trace: PathBuf,
    /// Memory of the guest in MiB.
    pub memory_mib: u32,
}

/// How often it is looked whether the guest has ended.
const STEP: Duration = Duration::from_millis(50);

impl Machine {
    /// The words of the command line, after the program.
    pub fn arguments(&self) -> Vec<String> {
        // To remap interrupts takes the split of the interrupt controller.
        let words = "-machine q35,kernel-irqchip=split -accel tcg,thread=multi -cpu max -smp 2 -nographic -no-reboot \
                     -nodefaults -serial stdio";
        let mut arguments: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let Iommu { remaps_interrupts, address_bits } = self.settings.iommu;
        let remapping = if remaps_interrupts { "on" } else { "off" };
        let iommu = format!("intel-iommu,intremap={remapping},aw-bits={address_bits},caching-mode=on");
        arguments.extend(["-device".to_owned(), iommu]);
        let append = "console=ttyS0 intel_iommu=on panic=-1 quiet loglevel=4 tsc=reliable no_timer_check";
        let append = format!("{append} {}", self.settings);
        let Self {
            kernel,
            settings: _,
            initramfs,
            bar,
            bar_bytes,
            report,
            monitor,
            traced,
            trace,
            memory_mib,
            drives,
            images,
        } = self;
        // BARs of 64 bits lie behind the addresses of memory that could be added: those of this much, behind the first
        // 2^39 bytes, which the narrow IOMMU could not name.
        let room = if address_bits > 39 { ",slots=1,maxmem=600G" } else { "" };
        arguments.extend(["-m".to_owned(), format!("{memory_mib}{room}")]);
        arguments.extend(["-qmp".to_owned(), format!("unix:{},server=on,wait=off", monitor.display())]);
        arguments.extend(traced.iter().flat_map(|event| ["-trace".to_owned(), (*event).to_owned()]));
        arguments.extend(["-D".to_owned(), trace.display().to_string()]);
        // The slots' own registers, as a drive's bay has them, in the place of ACPI's.
        arguments.extend(["-global".to_owned(), "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off".to_owned()]);
        arguments.extend(["-serial".to_owned(), format!("file:{}", report.display())]);
        arguments.extend(["-kernel".to_owned(), kernel.display().to_string()]);
        arguments.extend(["-initrd".to_owned(), initramfs.display().to_string()]);
        arguments.extend(["-append".to_owned(), append]);
        let backend = format!("memory-backend-file,id=bar,size={bar_bytes},share=on,mem-path={}", bar.display());
        arguments.extend(["-object".to_owned(), backend]);
        arguments.extend(["-device".to_owned(), "ivshmem-plain,memdev=bar,addr=4".to_owned()]);
        for slot in 0..SLOTS.len() {
            let port =
                format!("pcie-root-port,id=port{slot},chassis={},slot={},addr={:#x}", slot + 1, slot + 1, slot + 0x1d);
            arguments.extend(["-device".to_owned(), port]);
        }
        arguments.extend(["-device".to_owned(), "nvme-subsys,id=subsystem".to_owned()]);
        for (index, drive) in drives.iter().enumerate() {
            let Drive { mdts, options, namespaces } = drive;
            // The last ones, where there are others: the first controller has its place.
            let place = match (index + SLOTS.len()).checked_sub(drives.len()) {
                Some(slot) if drives.len() > SLOTS.len() => format!("bus=port{slot}"),
                _ => format!("addr={:#x}", index + 5),
            };
            // All controllers of a subsystem have one serial number.
            let serial = if namespaces.is_empty() { index - 1 } else { index };
            let id = drives::id(index);
            let controller = format!("nvme,id={id},serial=tentpeg{serial},mdts={mdts}{options},{place}");
            arguments.extend(["-device".to_owned(), controller]);
            for (nsid, format) in (1..).zip(*namespaces) {
                let Format { lba_size, metadata, protection, first, extended } = format;
                let (drive, path) = (format!("drive{index}-{nsid}"), image(images, index, nsid));
                let file = format!("file={},if=none,id={drive},format=raw,cache=unsafe", path.display());
                let block = format!("logical_block_size={lba_size},physical_block_size={lba_size}");
                let bits = [*extended, *first].map(u8::from);
                let metadata = format!("ms={metadata},pi={protection},mset={},pil={}", bits[0], bits[1]);
                let uuid = format!("uuid=00000000-0000-4000-8000-{index:06}{nsid:06}");
                let namespace = format!("nvme-ns,drive={drive},bus={id},nsid={nsid},{block},{metadata},{uuid}");
                arguments.extend(["-drive".to_owned(), file, "-device".to_owned(), namespace]);
            }
        }
        arguments
    }

    /// Runs it to its end, its console on standard output, and does what it wishes for. It is ended after `limit`.
    ///
    /// # Errors
    /// QEMU does not start, does not do what the guest wishes for, or the guest does not end in time.
    pub fn run(&self, limit: Duration) -> io::Result<ExitStatus> {
        // The file of the memory is there before, in its length, so that the host can look at it afterwards.
        File::create(&self.bar)?.set_len(self.bar_bytes)?;
        let mut qemu = Command::new("qemu-system-x86_64").args(self.arguments()).stdin(Stdio::null()).spawn()?;
        let started = Instant::now();
        let mut granted = 0;
        let wrong = loop {
            if let Some(status) = qemu.try_wait()? {
                return Ok(status);
            }
            if started.elapsed() > limit {
                break io::Error::new(io::ErrorKind::TimedOut, format!("the guest did not end within {limit:?}"));
            }
            if let Err(error) = self.grant(&mut granted) {
                break error;
            }
            std::thread::sleep(STEP);
        };
        qemu.kill()?;
        qemu.wait()?;
        Err(wrong)
    }

    /// Does what the report wishes for, behind the first wishes, which were `granted` already.
    fn grant(&self, granted: &mut usize) -> io::Result<()> {
        // Until QEMU has made the file there are no wishes.
        let text = fs::read(&self.report).unwrap_or_default();
        for wish in wishes(&String::from_utf8_lossy(&text)).skip(*granted) {
            *granted += 1;
            match wish {
                Wish::Unplug => Monitor::connect(&self.monitor)?.delete(&drives::unplugged())?,
            }
        }
        Ok(())
    }
}
