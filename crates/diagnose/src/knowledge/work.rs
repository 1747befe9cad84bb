//! Functions that tell kinds of CPU time beyond the program's own code.

use super::known::table;

table! {
    /// Functions that only wait, on a CPU.
    SPINNERS {
        "pthread_spin_lock*", "spinlock", "POSIX", Live;
        "__pthread_spin_lock*", "spinlock", "glibc", Live;
        "sched_yield*", "yields", "POSIX", Live;
        "__sched_yield*", "yields", "glibc", Live;
        "__GI_sched_yield*", "yields", "glibc", Live;
        "std::thread::yield_now*", "yields", "Rust", Live;
        "core::hint::spin_loop*", "spins", "Rust", Source;
        "parking_lot_core::spinwait::*", "spins", "parking_lot", Source;
        "spin::mutex::spin::*", "spinlock", "Rust, spin", Source;
        "crossbeam_utils::backoff::*", "spins", "crossbeam", Source;
        "std::this_thread::yield*", "yields", "C++", Source;
        "ut_delay*", "spins", "InnoDB", Source;
        "s_lock", "spinlock", "PostgreSQL", Source;
        "perform_spin_delay", "spinlock", "PostgreSQL", Source;
        "runtime.procyield*", "spins", "Go", Source;
        "runtime.osyield*", "yields", "Go", Source;
        "SpinPause*", "spins", "HotSpot", Source;
        "std::atomic_flag::test_and_set*", "one instruction: a loop comes back to it", "C++", Source;
        "_mm_pause", "one instruction: a loop comes back to it", "x86 intrinsic", Source;
        "absl::base_internal::SpinLock::SpinLoop*", "spinlock", "Abseil", Source;
        "gomp_team_barrier_wait*", "barrier", "libgomp", Source;
        "do_spin", "spins", "libgomp", Source;
        "native_queued_spin_lock_slowpath", "spinlock", "Linux", Live;
        "__pv_queued_spin_lock_slowpath", "spinlock", "Linux, guest", Live;
        "osq_lock", "optimistic spin", "Linux", Source;
        "mutex_spin_on_owner", "optimistic spin", "Linux", Source;
        "rwsem_spin_on_owner", "optimistic spin", "Linux", Source;
        "rwsem_optimistic_spin", "optimistic spin", "Linux", Source;
    }
}

table! {
    /// The kernel looks for memory to free.
    RECLAIM {
        "try_to_free_mem_cgroup_pages", "limit of a cgroup", "mm/vmscan.c", Live;
        "try_to_free_pages", "direct reclaim", "mm/vmscan.c", Live;
        "shrink_node*", "reclaim", "mm/vmscan.c", Live;
        "shrink_lruvec*", "reclaim", "mm/vmscan.c", Live;
        "mem_cgroup_out_of_memory", "limit of a cgroup", "mm/memcontrol.c", Source;
        "compact_zone*", "compaction", "mm/compaction.c", Source;
    }
}

table! {
    /// The kernel starts a thread or process for its caller.
    STARTS_OTHERS {
        "kernel_clone", "fork, clone", "kernel/fork.c", Live;
    }
}

table! {
    /// The kernel starts or ends a thread or process.
    START_IN_KERNEL {
        "kernel_clone", "fork, clone", "kernel/fork.c", Live;
        "do_exit", "exit", "kernel/exit.c", Live;
        "do_group_exit", "exit", "kernel/exit.c", Live;
        "bprm_execve", "exec", "fs/exec.c", Live;
        "do_execveat_common*", "exec", "fs/exec.c", Live;
        "ret_from_fork", "first return of a new thread", "arch", Live;
        "schedule_tail", "first return of a new thread", "kernel/sched/core.c", Live;
    }
}

table! {
    /// The dynamic loader starts a program.
    START_IN_LOADER {
        "_dl_start", "loader", "glibc, rtld.c", Live;
        "_dl_relocate_object", "loader", "glibc", Live;
        "dl_main", "loader", "glibc, rtld.c", Live;
        "_dl_map_object*", "loader", "glibc", Live;
    }
}

table! {
    /// A runtime collects garbage.
    COLLECT {
        "gc_collect_main*", "collection", "CPython", Live;
        "gc_collect_generations*", "collection", "CPython", Live;
        "gc_collect_with_callback*", "collection", "CPython", Live;
        "deduce_unreachable*", "collection", "CPython", Live;
        "runtime.gcBgMarkWorker*", "marking", "Go", Live;
        "runtime.gcDrain*", "marking", "Go", Live;
        "runtime.gcAssistAlloc*", "marking by an allocating goroutine", "Go", Live;
        "runtime.bgsweep*", "sweeping", "Go", Live;
        "runtime.sweepone*", "sweeping", "Go", Source;
        "runtime.gcStart*", "begin of a collection", "Go", Live;
        "runtime.gcMark*", "marking", "Go", Live;
        "runtime.bgscavenge*", "returns memory", "Go", Source;
        "v8::internal::Heap::CollectGarbage*", "collection", "V8", Source;
        "v8::internal::Heap::PerformGarbageCollection*", "collection", "V8", Source;
        "v8::internal::MarkCompactCollector::*", "mark and compact", "V8", Source;
        "v8::internal::Scavenger*", "young generation", "V8", Live;
        "v8::internal::MinorMark*", "young generation", "V8, from Node.js 20", Source;
        "v8::internal::IncrementalMarking*", "marking between the program's turns", "V8", Live;
        "v8::internal::ConcurrentMarking*", "marking by a helper", "V8", Live;
        "v8::internal::Sweeper*", "sweeping", "V8", Live;
        "v8::internal::ArrayBufferSweeper*", "sweeping", "V8", Source;
        "G1CollectedHeap::do_collection*", "pause", "HotSpot, G1", Live;
        "G1CollectedHeap::do_full_collection*", "full collection", "HotSpot, G1", Live;
        "G1ParScanThreadState::*", "evacuation", "HotSpot, G1", Live;
        "G1EvacuateRegions*", "evacuation", "HotSpot, G1", Live;
        "G1FullGC*", "full collection", "HotSpot, G1", Source;
        "G1FullCollector::*", "full collection", "HotSpot, G1", Source;
        "PSScavenge*", "young generation", "HotSpot, Parallel", Source;
        "DefNewGeneration::*", "young generation", "HotSpot, Serial", Source;
        "GenMarkSweep::*", "full collection", "HotSpot, Serial", Source;
        "G1ParTask::*", "pause", "HotSpot, G1", Source;
        "G1ConcurrentMark*", "marking", "HotSpot, G1", Live;
        "ParallelScavengeHeap::*", "collection", "HotSpot, Parallel", Source;
        "PSParallelCompact::*", "full collection", "HotSpot, Parallel", Source;
        "GenCollectedHeap::do_collection*", "collection", "HotSpot, Serial", Source;
        "ConcurrentGCThread::run*", "collector's own thread", "HotSpot", Live;
        "VM_G1*", "pause", "HotSpot, G1", Live;
        "VM_GenCollect*", "pause", "HotSpot, Serial", Source;
        "VM_Serial*", "pause", "HotSpot, Serial", Live;
        "VM_Parallel*", "pause", "HotSpot, Parallel", Live;
        "VM_Z*", "pause", "HotSpot, ZGC", Live;
        "VM_Shenandoah*", "pause", "HotSpot, Shenandoah", Live;
        "ZRelocate::*", "relocation, also by the program's threads", "HotSpot, ZGC", Source;
        "zend_gc_collect_cycles*", "collection", "PHP", Source;
        "gc_start*", "collection", "Ruby", Source;
        "rb_gc*", "collection", "Ruby", Source;
        "luaC_fullgc*", "collection", "Lua", Source;
        "luaC_step*", "collection", "Lua", Source;
        "GC_collect*", "collection", "Boehm's collector, Guile", Source;
        "caml_major_collection_slice*", "collection", "OCaml", Source;
    }
}

table! {
    /// Functions of `libjvm.so` in which a collector's workers work. Elsewhere these names may mean anything.
    HOTSPOT_WORKERS {
        "GangWorker::*", "collector's worker", "HotSpot, to JDK 18", Live;
        "WorkerThread::run*", "collector's worker", "HotSpot, from JDK 19", Live;
        "GCTaskThread::run*", "collector's worker", "HotSpot, Parallel, to JDK 13", Source;
    }
}

table! {
    /// Functions that threads of a collector alone run, whether they compute or wait.
    COLLECTOR_THREADS {
        "ConcurrentGCThread::run*", "concurrent collector", "HotSpot", Live;
    }
}

table! {
    /// A thread of the program waits for its collector. The collector's own threads never run these.
    STALLS {
        "ZPageAllocator::alloc_page_stall*", "allocation stall", "HotSpot, ZGC", Live;
        "ShenandoahControlThread::handle_alloc_failure*", "allocation stall", "HotSpot, Shenandoah, to JDK 23", Source;
        "ShenandoahController::handle_alloc_failure*", "allocation stall", "HotSpot, Shenandoah, from JDK 24", Source;
        "ShenandoahPacer::pace_for_alloc*", "allocation is paced", "HotSpot, Shenandoah", Source;
        "GCLocker::stall_until_clear*", "collection waits for native code", "HotSpot, to JDK 24", Source;
        "v8::internal::Heap::CollectGarbage*", "helpers of the collection", "V8", Live;
        "v8::internal::Heap::PerformGarbageCollection*", "helpers of the collection", "V8", Source;
        "v8::internal::Heap::EnsureSweepingCompleted*", "helpers that sweep", "V8", Source;
        "v8::internal::Heap::FinalizeIncrementalMarking*", "helpers of the collection", "V8", Source;
        "v8::internal::CollectionBarrier::AwaitCollection*", "collection by the main thread", "V8", Source;
    }
}

table! {
    /// The kernel handles page faults.
    FAULT {
        "asm_exc_page_fault", "page fault", "arch/x86", Live;
        "exc_page_fault", "page fault", "arch/x86/mm/fault.c", Live;
        "do_user_addr_fault", "page fault", "arch/x86/mm/fault.c", Live;
        "handle_mm_fault", "page fault", "mm/memory.c", Live;
        "do_mem_abort", "page fault", "arch/arm64/mm/fault.c", Source;
    }
}

table! {
    /// Functions that every program or script begins with: as callers they explain nothing.
    PROGRAM_ENTRIES {
        "main", "entry", "C and its kin", Live;
        "_start", "entry", "C library", Live;
        "start_thread", "entry of a thread", "glibc", Live;
        "<module>", "a script's own level", "CPython", Live;
        "run", "entry of a thread", "usage", Live;
        "perl_run", "entry", "Perl", Live;
        "Perl_runops*", "the interpreter's loop", "Perl", Live;
        "PostmasterMain", "entry of every process", "PostgreSQL", Live;
        "PostgresMain", "entry of a client's process", "PostgreSQL", Live;
    }
}
