//! How memory becomes what requests can name, and stops being that.

use std::sync::Arc;
use std::time::Duration;

use tentpeg_driver::dma::{Access, CallerMemory, HostMemory};
use tentpeg_driver::gpu::{Accelerator, CallerGpuMemory};

use super::Engine;
use crate::device::lock;
use crate::gpu::{EngineGpu, GpuWords, GpuWordsError};
use crate::lane::{Lane, Withdrawal, wait_for_inbox};
use crate::memory::{Memory, MemoryError, MemoryInUse, RegisterOptions, Registered};
use crate::progress;
use crate::staging::StagingMemory;

/// Between two looks at tasks whose ends nobody announces one by one.
const LOOK: Duration = Duration::from_millis(1);

impl Engine {
    /// Allocates host memory and registers it with the devices.
    ///
    /// # Errors
    /// [`MemoryError`]; nothing is allocated then.
    pub fn allocate_memory(&self, len: usize) -> Result<Memory, MemoryError> {
        let _registering = lock(&self.registering);
        let memory = HostMemory::allocate(len)?;
        let memory = Memory::allocated(self.space.register(memory, Access::all())?);
        // It shares addresses with others only where a caller has freed what is registered.
        let registered = self.registered.load().with(memory.clone())?;
        self.registered.store(Arc::new(registered));
        Ok(memory)
    }

    /// Allocates memory of the engine's GPU ([`EngineConfig::gpu`](crate::EngineConfig)), in whole pages of 64 KiB, and
    /// registers it with the devices. [`Memory::path`] says which way its bytes take, and [`Memory::proof`] whether that was
    /// proved. Requests name its addresses as any others; the host cannot touch it. Not to be called by a notifier.
    ///
    /// # Errors
    /// [`MemoryError`]; nothing is allocated then. [`MemoryError::GpuPath`] where no allowed way leads there.
    pub fn allocate_gpu_memory(&self, len: usize) -> Result<Memory, MemoryError> {
        self.allocate_gpu(len, None)
    }

    /// As [`allocate_gpu_memory`](Self::allocate_gpu_memory), of an engine whose lane, this one, the caller drives: turns it
    /// while the way is proved, which cannot be without.
    ///
    /// # Errors
    /// As there.
    pub fn allocate_gpu_memory_with(&self, len: usize, lane: &mut Lane) -> Result<Memory, MemoryError> {
        self.allocate_gpu(len, Some(lane))
    }

    fn allocate_gpu(&self, len: usize, lane: Option<&mut Lane>) -> Result<Memory, MemoryError> {
        let gpu = self.gpu.as_ref().ok_or(MemoryError::NoGpu)?;
        let _unregistering = lock(&self.unregistering);
        let memory = gpu.allocate(&self.space, len, self.bar1())?;
        self.admit_gpu(gpu, memory, lane)
    }

    /// Bytes of BAR1 that registered memory is mapped by.
    fn bar1(&self) -> u64 {
        self.registered.load().regions().iter().map(Memory::bar1).sum()
    }

    /// Makes memory of the GPU what requests can name, when its way is proved. Under the lock of unregistering, by which the
    /// GPU's memory comes and goes one after the other; that of registering is not held while devices prove the way, so that
    /// notifiers, of which their lanes may be in the middle, can allocate host memory.
    fn admit_gpu(&self, gpu: &EngineGpu, memory: Memory, mut lane: Option<&mut Lane>) -> Result<Memory, MemoryError> {
        let admitted = (|| {
            // Before data goes there: another may have its addresses.
            self.registered.load().check_free(memory.address(), memory.len() as u64)?;
            if let Some(proof) = self.prove(gpu, &memory, &mut lane)? {
                memory.set_proof(proof);
            }
            let _registering = lock(&self.registering);
            if memory.is_staged() {
                self.prepare_staging()?;
                let mut staging = self.devices.iter().filter_map(|opened| opened.staging.get());
                staging.try_for_each(StagingMemory::reaches_gpu)?;
            }
            self.registered.store(Arc::new(self.registered.load().with(memory.clone())?));
            Ok(())
        })();
        match admitted {
            Ok(()) => Ok(memory),
            Err(error) => {
                gpu.forget(&memory);
                // Those of the proof have ended, and no other command names it.
                memory.end();
                Err(error)
            }
        }
    }

    /// What writes and compares words of GPU memory that this engine has allocated, on the GPU.
    ///
    /// # Errors
    /// [`GpuWordsError`]; [`GpuWordsError::NotAllocated`] where it is other memory, or the engine has no GPU.
    pub fn gpu_words(&self, memory: &Memory) -> Result<GpuWords, GpuWordsError> {
        let gpu = self.gpu.as_ref().ok_or(GpuWordsError::NotAllocated { address: memory.address() })?;
        gpu.words(memory)
    }

    /// The engine's GPU.
    pub fn gpu(&self) -> Option<&Arc<dyn Accelerator>> {
        self.gpu.as_ref().map(EngineGpu::accelerator)
    }

    /// Registers memory that the caller has allocated on the engine's GPU, from any byte of an allocation on; the pages that
    /// it lies on have to be its allocation's. CUDA says what lies at the address: memory of cuMemAlloc, of mappings, of
    /// pools. Which way its bytes take is decided here ([`Memory::path`]). As with
    /// [`register_memory`](Self::register_memory), the same memory may be registered several times; not to be called by a
    /// notifier.
    ///
    /// Where the way is proved ([`GpuOptions::proving`](crate::GpuOptions)), blocks of the memory are overwritten and
    /// restored meanwhile: nobody else uses it before this has returned.
    ///
    /// # Errors
    /// [`MemoryError`]; nothing is registered then. [`MemoryError::Place`] says what is wrong with the address.
    pub fn register_gpu_memory(&self, memory: CallerGpuMemory, access: Access) -> Result<Memory, MemoryError> {
        self.register_gpu(memory, access, None)
    }

    /// As [`register_gpu_memory`](Self::register_gpu_memory), of an engine whose lane, this one, the caller drives: turns it
    /// while the way is proved, which cannot be without.
    ///
    /// # Errors
    /// As there.
    pub fn register_gpu_memory_with(
        &self,
        memory: CallerGpuMemory,
        access: Access,
        lane: &mut Lane,
    ) -> Result<Memory, MemoryError> {
        self.register_gpu(memory, access, Some(lane))
    }

    fn register_gpu(
        &self,
        memory: CallerGpuMemory,
        access: Access,
        lane: Option<&mut Lane>,
    ) -> Result<Memory, MemoryError> {
        let gpu = self.gpu.as_ref().ok_or(MemoryError::NoGpu)?;
        let (address, len) = (memory.address(), memory.len());
        if access.is_empty() {
            return Err(MemoryError::NoAccess { address, access });
        }
        let _unregistering = lock(&self.unregistering);
        let registering = lock(&self.registering);
        let registered = self.registered.load_full();
        if let Some(again) = registered.again(address, len, RegisterOptions { access, staging: false }, true) {
            let again = again?;
            let checked = again.check_place(&**gpu.accelerator());
            if checked.is_err() {
                registered.unregister_once(&again);
            }
            return checked.map(|()| again).map_err(MemoryError::from);
        }
        let placement = gpu.locate(&memory)?;
        registered.check_free(address, len)?;
        drop((registered, registering));
        let memory = gpu.register(&self.space, (memory, placement), access, self.bar1())?;
        self.admit_gpu(gpu, memory, lane)
    }

    /// Registers memory of the caller, where it lies; requests may name any part of it, from any byte on. Not to be called by
    /// a notifier.
    ///
    /// Devices are given whole pages, so they can reach what lies beside it on its first and last page, too
    /// ([`Memory::exposed_beside`]). Which path its bytes take is decided here: where devices cannot reach it they go
    /// through staging buffers, if `options` allow that, and else it is refused. A controller in another process
    /// (vfio-user) can reach only memory that has a file ([`CallerMemory::of_file`]).
    ///
    /// What is registered already, the same bytes with the same options, is registered once more: the handle is to the same
    /// memory, which has then to be unregistered as often. Whatever else shares an address with what is registered is
    /// refused.
    ///
    /// # Errors
    /// [`MemoryError`]; nothing is registered then.
    pub fn register_memory(&self, memory: CallerMemory, options: RegisterOptions) -> Result<Memory, MemoryError> {
        let (address, len) = (memory.address() as u64, memory.len() as u64);
        if options.access.is_empty() {
            return Err(MemoryError::NoAccess { address, access: options.access });
        }
        // What is being unregistered has its addresses until it is.
        let _unregistering = lock(&self.unregistering);
        let _registering = lock(&self.registering);
        let registered = self.registered.load_full();
        if let Some(again) = registered.again(address, len, options, false) {
            return again;
        }
        registered.check_free(address, len)?;
        if options.staging {
            self.prepare_staging()?;
        }
        let memory = Memory::of_caller(&self.space, memory, options)?;
        let with_it = registered.with(memory.clone())?;
        drop(registered);
        self.registered.store(Arc::new(with_it));
        Ok(memory)
    }

    /// What is registered, and has the `len` bytes at `address`, one or more, as a part of one.
    pub fn memory_at(&self, address: u64, len: u64) -> Option<Memory> {
        self.registered.load().find_open(address, len).cloned()
    }

    /// Has staging buffers for each device.
    pub(crate) fn prepare_staging(&self) -> Result<(), MemoryError> {
        for opened in &self.devices {
            if opened.staging.get().is_none() {
                let stager = self.gpu.as_ref().and_then(EngineGpu::stager);
                let memory = StagingMemory::new(&self.space, &opened.info.limits, stager)?;
                // Under the lock: nobody was quicker.
                let _ = opened.staging.set(memory);
            }
        }
        Ok(())
    }

    /// Takes memory out of what requests can name, gives up the tasks that name it and of which no command was issued, and
    /// returns when no task names it any more: then no hardware touches it, and nothing of the engine does. Memory that is
    /// not registered here is none of its business, and of what was registered more than once one registration is taken
    /// back.
    ///
    /// A task that spans devices is not given up but waited for: all that is queued of these runs to its end first; cancel
    /// their batches where that is not wanted. How long a command takes is bounded by the
    /// deadlines by which the engine recovers a controller that does not end it. For an engine
    /// whose lanes have threads; not to be called by a notifier.
    pub fn unregister_memory(&self, memory: Memory) {
        // Only the other form refuses.
        let _ = self.withdraw(memory, None, false);
    }

    /// As [`unregister_memory`](Self::unregister_memory), of an engine whose lane, this one, the caller drives: turns
    /// it meanwhile.
    pub fn unregister_memory_with(&self, memory: Memory, lane: &mut Lane) {
        let _ = self.withdraw(memory, Some(lane), false);
    }

    /// As [`unregister_memory`](Self::unregister_memory) where no task names the memory that has not ended, and else not
    /// at all. Requests that name it and are submitted at the same time may be found INVALID in either case.
    ///
    /// # Errors
    /// [`MemoryInUse`]; it stays registered then.
    pub fn try_unregister_memory(&self, memory: Memory) -> Result<(), MemoryInUse> {
        self.withdraw(memory, None, true)
    }

    /// As [`try_unregister_memory`](Self::try_unregister_memory), of an engine whose lane the caller drives.
    ///
    /// # Errors
    /// [`MemoryInUse`]; it stays registered then.
    pub fn try_unregister_memory_with(&self, memory: Memory, lane: &mut Lane) -> Result<(), MemoryInUse> {
        self.withdraw(memory, Some(lane), true)
    }

    fn withdraw(&self, memory: Memory, mut lane: Option<&mut Lane>, refuses: bool) -> Result<(), MemoryInUse> {
        // Of two that unregister the same memory the second returns when the first does.
        let _unregistering = lock(&self.unregistering);
        {
            let _registering = lock(&self.registering);
            if self.registered.load().unregister_once(&memory) {
                return Ok(());
            }
        }
        if refuses {
            let tasks = self.ask(&memory, false, &mut lane).tasks();
            if tasks != 0 {
                return Err(MemoryInUse { memory, tasks });
            }
        }
        if !self.change_registered(&mut lane, |registered| registered.closing(&memory)) {
            return Ok(());
        }
        // No submit is in progress any more that could name it.
        let answers = self.ask(&memory, !refuses, &mut lane);
        let tasks = if refuses { answers.tasks() } else { 0 };
        if tasks != 0 {
            self.change_registered(&mut lane, |registered| Some(registered.opened(&memory)));
            return Err(MemoryInUse { memory, tasks });
        }
        self.wait_until(&mut lane, || answers.is_over());
        self.change_registered(&mut lane, |registered| Some(registered.without(&memory)));
        if let Some(gpu) = &self.gpu {
            gpu.forget(&memory);
        }
        memory.end();
        Ok(())
    }

    /// Takes all memory of callers back, when the controllers have stopped: nothing of the engine touches it any more.
    pub(super) fn end_registrations(&self) {
        let mut callers = Vec::new();
        self.change_registered(&mut None, |registered| {
            callers.extend_from_slice(registered.regions());
            Some(Registered::default())
        });
        callers.iter().for_each(Memory::cut_off);
    }

    /// Asks each port for the tasks that name the memory, and waits for the answers.
    fn ask(&self, memory: &Memory, gives_up: bool, lane: &mut Option<&mut Lane>) -> Arc<Withdrawal> {
        let question = Withdrawal::new(memory, gives_up, self.devices.len());
        for (lane, opened) in (0..).zip(&self.devices) {
            opened.inquiries.ask(&question);
            // A port that is no more has closed its inquiries, so that whoever asks has his answer, or will; what is in its
            // inbox is given up by those who put it there, one of whom may be in the middle of that.
            if !opened.bell.ring() {
                wait_for_inbox(&opened.inbox, lane, &opened.bell);
            }
        }
        self.wait_until(lane, || question.is_answered());
        question
    }

    /// Changes the set of registered memory, and waits until nobody looks at the former one. Whether it was changed.
    fn change_registered(
        &self,
        lane: &mut Option<&mut Lane>,
        change: impl FnOnce(&Registered) -> Option<Registered>,
    ) -> bool {
        let registering = lock(&self.registering);
        let Some(changed) = change(&self.registered.load()) else { return false };
        let mut former = Some(self.registered.swap(Arc::new(changed)));
        drop(registering);
        // Whoever has it, a submit or a copy from staging memory, is counted since the swap.
        self.wait_until(lane, || {
            former = former.take().and_then(|former| Arc::try_unwrap(former).err());
            former.is_none()
        });
        true
    }

    /// Waits for what lanes bring about, and turns the one that is the caller's.
    pub(super) fn wait_until(&self, lane: &mut Option<&mut Lane>, mut done: impl FnMut() -> bool) {
        loop {
            let seen = self.progress.now();
            if done() {
                return;
            }
            match lane {
                Some(lane) => {
                    lane.turn();
                }
                None => {
                    self.progress.wait(seen, progress::deadline(LOOK));
                }
            }
        }
    }
}
