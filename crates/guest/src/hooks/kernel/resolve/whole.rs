//! A whole kernel out of the tables of its description.

use super::super::{Activity, Heap, HookEvent, Kernel, Lines, Runnable, Test, Threads};
use super::Resolver;
use crate::hooks::description::{Description, Input, Names, Text};
use crate::hooks::expression::{Binding, Expression, Inputs};
use crate::state::{Pieces, Registers};
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::sync::Arc;
use trace::Trusted;

impl<'a> Resolver<'a> {
    pub(super) fn kernel(&mut self) -> Kernel {
        let description: &'a Description = self.description;
        let tables = &description.tables;
        self.check_definitions();
        let threads = self.threads();
        let bindings = self.thread_binding();
        let runnable = self.runnable(&bindings);
        self.functions();
        let locks = tables.lock.iter().enumerate().map(|(index, lock)| self.lock(index, lock)).collect();
        let (heaps, tested_code) = self.heaps();
        let mut ignored_code = self.code_ranges(tables.ignore.functions.as_ref());
        ignored_code.retain(|range| !tested_code.contains(range));
        self.panics();
        self.faults(&tables.fault, |vector, address| HookEvent::Fault { vector, address });
        let test = self.test();
        self.programs();
        let checks = self.checks();
        let mut kernel = Kernel {
            name: Arc::from(tables.name.as_str()),
            image: self.image.clone(),
            annotations: tables.annotations,
            threads,
            runnable,
            fair: tables.runnable.fair,
            preemption_allowed: self.anywhere(tables.preemption.allowed.as_ref(), &[]),
            interrupts_as_lock: tables.preemption.interrupts_as_lock,
            timer_vector: tables.timer.vector.as_ref().map(|vector| *vector.as_ref()),
            time_passes: tables.timer.time_passes,
            clock: self.data_ranges(tables.timer.clock.as_ref()),
            idle_thread: self.anywhere(tables.idle.thread.as_ref(), &[]),
            idle_is: self.anywhere(tables.idle.is.as_ref(), &bindings),
            idle_when: self.anywhere(tables.idle.when.as_ref(), &[]),
            locks,
            heaps,
            test,
            user_region: self.region(tables.user.region.as_ref(), &[]),
            program: self.anywhere(tables.user.program.as_ref(), &[]),
            space: self.anywhere(tables.user.space.as_ref(), &bindings),
            library: tables.user.library.as_deref().map(Arc::from),
            tested: None,
            ignored_code,
            ignored_names: self.ignored_names(),
            blocking_code: self.code_ranges(tables.functions.blocking.as_ref()),
            ignored_data: self.data_ranges(tables.ignore.symbols.as_ref()),
            ignored_regions: self.ignored_regions(),
            raceless_code: self.code_ranges(tables.ignore.races.as_ref()),
            timer_code: self.timer_code(),
            guards: Vec::new(),
            console: tables.console.clone(),
            checks,
            lines: self.lines(),
            cautions: std::mem::take(&mut self.cautions),
            hooks: std::mem::take(&mut self.hooks),
            entered: FxHashMap::default(),
            passed: FxHashMap::default(),
        };
        let variables = kernel.preemption_allowed.iter().flat_map(Expression::variables);
        kernel.guards = variables.map(|(start, bytes)| start.0..start.0 + bytes).collect();
        kernel.index();
        kernel
    }

    /// How threads are known, and the hooks of their birth and end.
    fn threads(&mut self) -> Threads {
        let description: &'a Description = self.description;
        let tables = &description.tables;
        let current = self.anywhere(tables.threads.current.as_ref(), &[]);
        self.thread = current.as_ref().map(|current| current.ty().clone());
        if !tables.annotations && tables.threads.current.is_none() {
            self.missing(
                "threads.current",
                "an expression for the thread that runs, such as \"current->tid\"",
            );
        }
        let bindings = self.thread_binding();
        let threads = Threads {
            id: self.anywhere(tables.threads.id.as_ref(), &bindings),
            name: self.anywhere(tables.threads.name.as_ref(), &bindings),
            existing: tables.threads.existing.as_ref().map_or_else(Vec::new, |names| self.list(names)),
            gone: self.anywhere(tables.threads.gone.as_ref(), &bindings),
            stack_pointer: self.anywhere(tables.threads.stack_pointer.as_ref(), &bindings),
            current,
        };
        if let Some(begin) = &tables.threads.begin {
            for place in self.places(Some(begin), &begin.span()) {
                self.add(HookEvent::Begin, place, None);
            }
        }
        self.thread_hooks(&tables.threads.create, |thread| HookEvent::Create { thread });
        self.thread_hooks(&tables.threads.exit, |thread| HookEvent::Exit { thread });
        if !tables.annotations && tables.threads.create.is_empty() {
            self.missing("threads.create", "a hook for the creation of threads");
        }
        threads
    }

    /// How it is known whether a thread can run.
    fn runnable(&mut self, bindings: &[Binding]) -> Runnable {
        let description: &'a Description = self.description;
        let runnable = &description.tables.runnable;
        let by_queue = !runnable.add.is_empty() || !runnable.remove.is_empty();
        match &runnable.when {
            Some(when) => {
                if by_queue {
                    self.problem(
                        when.span().start,
                        "runnable is told by 'when' or by 'add' and 'remove', not by both",
                    );
                }
                if let Some(wakes) = &runnable.wakes {
                    for place in self.places(Some(wakes), &wakes.span()) {
                        self.add(HookEvent::Wakes, place, None);
                    }
                }
                match self.anywhere(Some(when), bindings) {
                    Some(when) => Runnable::State(when),
                    None => Runnable::Annotated,
                }
            }
            None if runnable.wakes.is_some() => {
                let at = runnable.wakes.as_ref().map_or(0, |wakes| wakes.span().start);
                self.problem(at, "'wakes' is for threads whose state is told by 'when'");
                Runnable::Annotated
            }
            None if by_queue => {
                if runnable.add.is_empty() || runnable.remove.is_empty() {
                    self.missing("runnable.add and runnable.remove", "a run queue is told by both");
                }
                self.thread_hooks(&runnable.add, |thread| HookEvent::QueueAdd { thread });
                self.thread_hooks(&runnable.remove, |thread| HookEvent::QueueRemove { thread });
                Runnable::Queue { current: self.anywhere(runnable.current.as_ref(), bindings) }
            }
            None => {
                if !description.tables.annotations {
                    self.missing(
                        "runnable.when",
                        "when thread t can run, such as \"t->state == READY\" (or runnable.add and runnable.remove)",
                    );
                }
                Runnable::Annotated
            }
        }
    }

    /// What functions do: handle ticks, switch threads, yield, sleep.
    fn functions(&mut self) {
        let description: &'a Description = self.description;
        let tables = &description.tables;
        let functions = &tables.functions;
        self.activity(functions.timer.as_ref(), Activity::Timer);
        self.activity(functions.interrupt.as_ref(), Activity::Interrupt);
        self.activity(functions.switch.as_ref(), Activity::Switch);
        self.activity(functions.r#yield.as_ref(), Activity::Yield);
        self.activity(functions.sleep.as_ref(), Activity::Sleep);
        self.activity(functions.device.as_ref(), Activity::Device);
        self.activity(functions.idle.as_ref(), Activity::Idle);
        self.activity(functions.trusted.as_ref(), Activity::Trusted);
        let reads =
            [HookEvent::EnterTrusted(Trusted::ReadsFreed), HookEvent::LeaveTrusted(Trusted::ReadsFreed)];
        self.stretches(tables.ignore.freed_reads.as_ref(), &reads);
        if let Some(ends) = &functions.switch_ends {
            for place in self.places(Some(ends), &ends.span()) {
                self.add(HookEvent::SwitchEnd, place, None);
            }
        }
        if let Some(ends) = &functions.handler_ends {
            for place in self.places(Some(ends), &ends.span()) {
                self.add(HookEvent::HandlerEnd, place, None);
            }
        }
        if !tables.annotations && functions.timer.is_none() {
            self.missing("functions.timer", "the function that handles a tick of the timer");
        }
        if !tables.annotations && functions.switch.is_none() {
            self.missing("functions.switch", "the function that changes from one thread to another");
        }
    }

    /// The heaps, and the code of those that are themselves under test.
    fn heaps(&mut self) -> (Vec<Heap>, Vec<Range<u64>>) {
        let description: &'a Description = self.description;
        let mut tested_code = Vec::new();
        let heaps = description.tables.heap.iter().enumerate().map(|(index, heap)| {
            let first = self.hooks.len();
            let heap = self.heap(index, heap);
            if heap.under_test {
                let functions = self.functions_of(first);
                let ranges = |function| self.image.ranges(&self.image.get(function).name);
                tested_code.extend(functions.into_iter().flat_map(ranges));
                self.trust(first, Trusted::HeapUnderTest);
            } else {
                self.around(
                    first,
                    [HookEvent::Enter(Activity::Trusted), HookEvent::Leave(Activity::Trusted)],
                );
            }
            heap
        });
        (heaps.collect(), tested_code)
    }

    /// How a test is given to the kernel, and where it begins and ends.
    fn test(&mut self) -> Test {
        let description: &'a Description = self.description;
        let tables = &description.tables;
        let test = &tables.test;
        self.test_hooks(&test.ready, &HookEvent::Ready);
        self.test_hooks(&test.start, &HookEvent::TestStart);
        self.test_hooks(&test.end, &HookEvent::TestEnd);
        self.test_hooks(&test.over, &HookEvent::TestOver);
        let command_line = test.command_line.as_ref().and_then(|table| self.command_line(table));
        let by_hand = matches!(test.input, Input::Keyboard | Input::Serial);
        if !tables.annotations && by_hand && test.ready.is_empty() {
            self.missing(
                "test.ready",
                "where the kernel waits for input, such as [{ on = \"enter readline\" }]",
            );
        }
        Test {
            input: test.input,
            command_line,
            text: test.r#type.clone().unwrap_or_else(|| "{test}\n".into()),
            start_hooked: self.hooks.iter().any(|hook| matches!(hook.event, HookEvent::TestStart)),
            points: self.points(&test.points),
            keeps: test.keeps.as_ref().map_or_else(Vec::new, |sizes| self.sizes(sizes)),
            end_hooked: self.hooks.iter().any(|hook| matches!(hook.event, HookEvent::TestEnd)),
        }
    }

    /// Where programs enter the kernel, are loaded, fail and end.
    fn programs(&mut self) {
        let description: &'a Description = self.description;
        let user = &description.tables.user;
        for call in &user.system_call {
            for place in self.places(call.as_ref().on.as_ref(), &call.span()) {
                if let Some(number) = self.at(call.as_ref().number.as_ref(), &place, Some("arg0")) {
                    let from = self.at(call.as_ref().from.as_ref(), &place, None);
                    self.add(HookEvent::SystemCall { number, from }, place, call.as_ref().r#if.as_ref());
                }
            }
        }
        for exec in &user.exec {
            for place in self.places(exec.as_ref().on.as_ref(), &exec.span()) {
                if let Some(program) = self.at(exec.as_ref().program.as_ref(), &place, Some("string(arg0)")) {
                    self.add(HookEvent::Exec { program }, place, exec.as_ref().r#if.as_ref());
                }
            }
        }
        self.test_hooks(&user.exit, &HookEvent::ProgramExit);
        self.test_hooks(&user.end, &HookEvent::ProgramEnd);
        self.test_hooks(&user.r#return, &HookEvent::ReturnToUser);
        self.faults(&user.fault, |vector, address| HookEvent::ProgramFault { vector, address });
    }

    fn lines(&self) -> Lines {
        let tables = &self.description.tables;
        let line = |text: Option<&Text>| text.map(|text| self.description.line(text.span().start));
        Lines {
            current: line(tables.threads.current.as_ref()),
            id: line(tables.threads.id.as_ref()),
            runnable: line(tables.runnable.when.as_ref()),
            allowed: line(tables.preemption.allowed.as_ref()),
            vector: tables.timer.vector.as_ref().map(|vector| self.description.line(vector.span().start)),
        }
    }

    /// Numbers that the kernel's types alone decide.
    fn sizes(&mut self, texts: &Names) -> Vec<u64> {
        let (nothing, registers) = (Pieces::default(), Registers::default());
        let constant = |size: Expression| size.value(&nothing, &Inputs::new(&registers)).ok();
        let sizes: Vec<Option<u64>> = self.list(texts).into_iter().map(constant).collect();
        if sizes.contains(&None) {
            self.problem(texts.span().start, "a size is a number, such as \"sizeof(struct thread)\"");
        }
        sizes.into_iter().flatten().collect()
    }
}
