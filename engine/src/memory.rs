//! Memory that requests can name.
//!
//! [`Memory`] is a handle to what was registered with an engine: memory that the engine allocated, or the caller's own where
//! it lies. Which path its bytes take is decided when it is registered, and never changed: devices reach it, or it is
//! copied through staging buffers ([`staging`](crate::staging)), where the caller has allowed that. [`registered`] is the set
//! of all of it.

mod error;
#[cfg(test)]
pub(crate) mod own;
mod registered;

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use tentpeg_driver::dma::{
    AcceleratorMemory, Access, Backing, CallerMemory, DmaSpace, DmaView, HostMemory, InPlaceError, Iova, IovaRange,
    Pages, Region, WholePages,
};
use tentpeg_driver::gpu::{Accelerator, PlaceError, Placement, PointerQueries};

pub use error::{MemoryError, MemoryInUse};
#[cfg(test)]
pub(crate) use registered::StagedEntry;
pub(crate) use registered::{Nameable, Registered};

use crate::device::lock;
use crate::gpu::{GpuProof, MemoryPath};

/// How memory of the caller is registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegisterOptions {
    /// What requests may have devices do with it: `DEVICE_WRITES` is what a read of a segment needs, `DEVICE_READS` a write
    /// to one. Both without a word.
    pub access: Access,
    /// Whether bytes may go through staging buffers, where devices cannot take another way: because they cannot reach the
    /// memory at all ([`Memory::staged`] says why then), or because a request's memory is not on a dword. Such bytes are
    /// copied by the processor, and counted. Not allowed without a word: then memory that devices cannot reach is refused,
    /// and a request that is not on a dword is INVALID.
    pub staging: bool,
}

impl Default for RegisterOptions {
    fn default() -> Self {
        Self { access: Access::all(), staging: false }
    }
}

/// Memory that is registered with an engine. Clones name the same memory.
///
/// What the engine allocated stays registered until it is unregistered, or the engine is closed, and allocated as long as a
/// handle is there. What is the caller's stays registered until it is unregistered, as often as it was registered, or until
/// the engine has been closed; a handle that is left keeps nothing of it.
#[derive(Clone)]
pub struct Memory {
    inner: Arc<Inner>,
}

struct Inner {
    address: u64,
    len: usize,
    access: Access,
    /// Whether bytes may go through staging buffers.
    staging: bool,
    /// How often it is registered; changed while the set of registered memory is locked.
    registrations: AtomicU32,
    home: Home,
}

/// Whose it is, and how devices reach it.
enum Home {
    Allocated(Region<HostMemory>),
    InPlace {
        memory: Arc<CallerMemory>,
        /// Until it is unregistered, whoever has a handle.
        region: Mutex<Option<Region<Arc<CallerMemory>>>>,
        /// Where it lies, with the rest of its pages; and where its first byte does.
        iovas: IovaRange,
        first: Iova,
        beside: (usize, usize),
    },
    Staged {
        memory: Arc<CallerMemory>,
        /// Why devices do not reach it.
        reason: String,
    },
    Gpu(GpuHome),
}

/// What of a GPU's memory devices reach.
pub(crate) type GpuRegion = Region<Arc<dyn AcceleratorMemory>>;

/// GPU memory, the engine's or the caller's.
pub(crate) struct GpuHome {
    /// Until it is unregistered, whoever has a handle; none where it is staged.
    region: Mutex<Option<GpuRegion>>,
    /// Allocated as long as there is a handle, where it is the engine's.
    memory: Arc<dyn AcceleratorMemory>,
    /// The IOVAs of its pages, and of its first byte; `None`: it is staged.
    iovas: Option<(IovaRange, Iova)>,
    /// Bytes of its first page before it.
    before: u64,
    path: MemoryPath,
    /// How far that was proved, where devices go it by themselves.
    proof: OnceLock<GpuProof>,
    origin: GpuOrigin,
}

/// Where GPU memory comes from.
pub(crate) enum GpuOrigin {
    /// The engine has allocated it, on this GPU.
    Allocated(Arc<dyn Accelerator>),
    /// It is the caller's, and lay there when it was registered.
    Caller(Placement),
}

impl GpuHome {
    /// `region` is of `memory`, of which requests name no byte before `before`; without one it is staged.
    pub(crate) fn new(
        region: Option<GpuRegion>,
        memory: Arc<dyn AcceleratorMemory>,
        (before, path): (u64, MemoryPath),
        origin: GpuOrigin,
    ) -> Self {
        // The first byte lies before the end of its first page.
        let iovas = region.as_ref().map(|region| (region.range(), region.iova_at(before).unwrap_or(region.iova())));
        Self { region: Mutex::new(region), memory, iovas, before, path, proof: OnceLock::new(), origin }
    }
}

impl Memory {
    /// Memory that was allocated for it.
    pub(crate) fn allocated(region: Region<HostMemory>) -> Self {
        let backing = region.backing();
        let (address, len) = (backing.base().addr().get() as u64, backing.len());
        Self::new((address, len), RegisterOptions { access: region.access(), staging: false }, Home::Allocated(region))
    }

    /// Memory of the caller: where it lies, or else through staging, where `options` allow that.
    pub(crate) fn of_caller(
        space: &Arc<DmaSpace>,
        memory: CallerMemory,
        options: RegisterOptions,
    ) -> Result<Self, InPlaceError> {
        memory.check_access(options.access)?;
        let range = (memory.address() as u64, memory.len());
        let memory = Arc::new(memory);
        let home = match Self::in_place(space, &memory, options.access) {
            Ok(home) => home,
            Err(error) if options.staging => Home::Staged { memory, reason: error.to_string() },
            Err(error) => return Err(error),
        };
        Ok(Self::new(range, options, home))
    }

    /// Memory of a GPU.
    pub(crate) fn of_gpu((address, len): (u64, u64), access: Access, home: GpuHome) -> Self {
        // What is addressed fits an address.
        let staging = home.iovas.is_none();
        Self::new((address, len as usize), RegisterOptions { access, staging }, Home::Gpu(home))
    }

    fn in_place(space: &Arc<DmaSpace>, memory: &Arc<CallerMemory>, access: Access) -> Result<Home, InPlaceError> {
        let WholePages { before, after, .. } = memory.whole_pages(space.page_size())?;
        let region = space.register_in_place(memory, access)?;
        // The first byte lies before the end of its first page.
        let first = region.iova_at(before as u64).unwrap_or(region.iova());
        let (iovas, memory) = (region.range(), Arc::clone(memory));
        Ok(Home::InPlace { memory, region: Mutex::new(Some(region)), iovas, first, beside: (before, after) })
    }

    fn new((address, len): (u64, usize), options: RegisterOptions, home: Home) -> Self {
        let RegisterOptions { access, staging } = options;
        let inner = Inner { address, len, access, staging, registrations: AtomicU32::new(1), home };
        Self { inner: Arc::new(inner) }
    }

    /// The address of the first byte: what a request's `source` counts from.
    pub fn address(&self) -> u64 {
        self.inner.address
    }

    /// The length in bytes: of what was allocated, what was asked for, rounded up to whole pages.
    pub fn len(&self) -> usize {
        self.inner.len
    }

    /// Whether there is no byte: never.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// What requests may have devices do with it.
    pub fn access(&self) -> Access {
        self.inner.access
    }

    /// What it stands on; `None`: it is the caller's.
    pub fn pages(&self) -> Option<&Pages> {
        match &self.inner.home {
            Home::Allocated(region) => Some(region.backing().pages()),
            Home::InPlace { .. } | Home::Staged { .. } | Home::Gpu(_) => None,
        }
    }

    /// Why all of its bytes go through staging buffers; `None`: devices reach it.
    pub fn staged(&self) -> Option<&str> {
        match &self.inner.home {
            Home::Staged { reason, .. } => Some(reason),
            Home::Allocated(_) | Home::InPlace { .. } | Home::Gpu(_) => None,
        }
    }

    /// The way that its bytes take, which was chosen when it was registered.
    pub fn path(&self) -> MemoryPath {
        match &self.inner.home {
            Home::Allocated(_) | Home::InPlace { .. } => MemoryPath::Host,
            Home::Staged { reason, .. } => MemoryPath::HostStaged { reason: reason.clone() },
            Home::Gpu(GpuHome { path, .. }) => path.clone(),
        }
    }

    /// How far the way of GPU memory that devices reach by themselves was proved with data; `None`: of other memory, and
    /// where that was not asked for.
    pub fn proof(&self) -> Option<&GpuProof> {
        match &self.inner.home {
            Home::Gpu(GpuHome { proof, .. }) => proof.get(),
            _ => None,
        }
    }

    /// What was proved of it.
    pub(crate) fn set_proof(&self, proof: GpuProof) {
        if let Home::Gpu(GpuHome { proof: known, .. }) = &self.inner.home {
            // It is proved once, before it is registered.
            let _ = known.set(proof);
        }
    }

    /// Bytes of a GPU's BAR1 that it is mapped by.
    pub(crate) fn bar1(&self) -> u64 {
        match &self.inner.home {
            Home::Gpu(GpuHome { memory, iovas: Some(_), path: MemoryPath::Gpu { .. }, .. }) => memory.len(),
            _ => 0,
        }
    }

    /// Whether devices do not reach it, so that all its bytes are staged.
    pub(crate) fn is_staged(&self) -> bool {
        self.iovas().is_none()
    }

    /// Whether it is memory of a GPU, which the host cannot touch.
    pub fn is_gpu(&self) -> bool {
        matches!(self.inner.home, Home::Gpu(_))
    }

    /// Whether an engine has allocated it on that GPU, so that a handle keeps it.
    pub(crate) fn is_allocated_on(&self, gpu: &Arc<dyn Accelerator>) -> bool {
        let Home::Gpu(GpuHome { origin: GpuOrigin::Allocated(of), .. }) = &self.inner.home else { return false };
        Arc::ptr_eq(of, gpu)
    }

    /// How many bytes devices can reach that lie before and behind it on its first and last page, as they can be given whole
    /// pages only. No command names them. Memory that is whole pages has none.
    pub fn exposed_beside(&self) -> (usize, usize) {
        match &self.inner.home {
            Home::InPlace { beside, .. } => *beside,
            Home::Gpu(GpuHome { memory, before, iovas: Some(_), .. }) => {
                (*before as usize, (memory.len() - before) as usize - self.len())
            }
            Home::Gpu(_) => (0, 0),
            Home::Allocated(_) | Home::Staged { .. } => (0, 0),
        }
    }

    /// The bytes of memory that the engine allocated. What a pending task reads or writes is of no meaning meanwhile.
    ///
    /// # Panics
    /// Where it is the caller's, who has the bytes already, or a GPU's, of which the host has none.
    pub fn view(&self) -> DmaView<'_> {
        match &self.inner.home {
            Home::Allocated(region) => region.view(),
            Home::InPlace { memory, .. } | Home::Staged { memory, .. } => {
                panic!("{memory:?} are the caller's: a view is of memory that an engine has allocated")
            }
            Home::Gpu(_) => panic!("{self:?} are a GPU's: copy them there, the host has no view of them"),
        }
    }

    /// The IOVAs by which devices reach it. `None`: they do not.
    pub(crate) fn iovas(&self) -> Option<IovaRange> {
        match &self.inner.home {
            Home::Allocated(region) => Some(region.range()),
            Home::InPlace { iovas, .. } => Some(*iovas),
            Home::Gpu(GpuHome { iovas, .. }) => iovas.map(|(range, _)| range),
            Home::Staged { .. } => None,
        }
    }

    /// The IOVA of the first byte, likewise.
    pub(crate) fn first_iova(&self) -> Option<Iova> {
        match &self.inner.home {
            Home::Allocated(region) => Some(region.iova()),
            Home::InPlace { first, .. } => Some(*first),
            Home::Gpu(GpuHome { iovas, .. }) => iovas.map(|(_, first)| first),
            Home::Staged { .. } => None,
        }
    }

    /// Copies from `offset` into the whole of `to`, while it is registered. What is a GPU's does not come here.
    pub(crate) fn read(&self, offset: usize, to: &mut [u8]) {
        match &self.inner.home {
            Home::Gpu(_) => debug_assert!(false, "the host cannot read {self:?}"),
            Home::Allocated(region) => region.view().read(offset, to),
            Home::InPlace { memory, .. } | Home::Staged { memory, .. } => memory.read(offset, to),
        }
    }

    /// Copies `from` to `offset`, while it is registered, for devices to write among others. Likewise.
    pub(crate) fn write(&self, offset: usize, from: &[u8]) {
        match &self.inner.home {
            Home::Gpu(_) => debug_assert!(false, "the host cannot write {self:?}"),
            Home::Allocated(region) => region.view().write(offset, from),
            Home::InPlace { memory, .. } | Home::Staged { memory, .. } => memory.write(offset, from),
        }
    }

    /// Ends what devices reach of it: no command names it any more. What is allocated stays as long as there is a handle.
    pub(crate) fn end(self) {
        match &self.inner.home {
            Home::InPlace { region, .. } => {
                if let Some(region) = lock(region).take() {
                    region.release();
                }
            }
            Home::Gpu(GpuHome { region, .. }) => {
                if let Some(region) = lock(region).take() {
                    region.release();
                }
            }
            Home::Staged { .. } => {}
            Home::Allocated(_) => {
                // Its IOVAs can be used again at once where this is the last handle.
                if let Some(Inner { home: Home::Allocated(region), .. }) = Arc::into_inner(self.inner) {
                    region.release();
                }
            }
        }
    }

    /// Ends what devices reach of it where it is the caller's, or a GPU's, at a time at which nobody knows what commands name.
    pub(crate) fn cut_off(&self) {
        match &self.inner.home {
            Home::InPlace { region, .. } => drop(lock(region).take()),
            Home::Gpu(GpuHome { region, .. }) => drop(lock(region).take()),
            Home::Allocated(_) | Home::Staged { .. } => {}
        }
    }

    /// Whether devices reach it.
    #[cfg(test)]
    pub(crate) fn is_reached(&self) -> bool {
        match &self.inner.home {
            Home::Allocated(_) => true,
            Home::InPlace { region, .. } => lock(region).is_some(),
            Home::Gpu(GpuHome { region, .. }) => lock(region).is_some(),
            Home::Staged { .. } => false,
        }
    }

    /// Registers it once more. `false`: it is registered in another way.
    fn register_again(&self, options: RegisterOptions) -> bool {
        let Inner { access, staging, registrations, home, .. } = &*self.inner;
        let of_caller = match home {
            Home::InPlace { .. } | Home::Staged { .. } => true,
            Home::Gpu(GpuHome { origin, .. }) => matches!(origin, GpuOrigin::Caller(_)),
            Home::Allocated(_) => false,
        };
        // Whether a GPU's is staged was not the caller's to say.
        let as_before = *staging == options.staging || matches!(home, Home::Gpu(_));
        let same = *access == options.access && as_before && of_caller;
        if same {
            registrations.fetch_add(1, Ordering::Relaxed);
        }
        same
    }

    /// Whether GPU memory of the caller is still what it was when it was registered.
    pub(crate) fn check_place(&self, queries: &dyn PointerQueries) -> Result<(), PlaceError> {
        match &self.inner.home {
            Home::Gpu(GpuHome { origin: GpuOrigin::Caller(placement), .. }) => placement.check(queries),
            _ => Ok(()),
        }
    }

    /// Takes back one registration. Whether it is registered still.
    fn unregister_once(&self) -> bool {
        let registrations = &self.inner.registrations;
        let many = registrations.load(Ordering::Relaxed) > 1;
        if many {
            registrations.fetch_sub(1, Ordering::Relaxed);
        }
        many
    }

    /// Whether both are handles to one.
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:#x}", self.len(), self.address())
    }
}
