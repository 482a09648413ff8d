//! Guests that do a bit of everything for ever, assembled here: they take timer interrupts, edit their page
//! tables, change their own code, call through pointers and copy with string instructions.

use iced_x86::code_asm::*;
use machine::x86::state::reg;
use machine::{Machine, Seg, Segment};
use trace::PhysAddr;

pub const CODE: u64 = 0x1_0000;
const DIRECTORY: u32 = 0x8_0000;
const TABLE: u32 = 0x8_1000;
const IDT: u32 = 0x8_2000;
const STACK: u32 = 0x8_8000;
/// Two pages whose mappings are swapped, and the linear page they are swapped at.
pub const WINDOW: u32 = 0x9_0000;
pub const DATA: u32 = 0xa_0000;

fn gate(address: u32) -> u64 {
    u64::from(address & 0xffff) | 8 << 16 | 0x8e00 << 32 | u64::from(address >> 16) << 48
}

/// A guest.
pub struct Guest {
    pub name: &'static str,
    /// The guest, about to start.
    pub boot: fn() -> Machine,
    /// Where the linear page is whose mapping changes.
    #[allow(dead_code)]
    pub window: u64,
}

pub const GUESTS: [Guest; 2] = [
    Guest { name: "32-bit", boot: narrow, window: WINDOW as u64 },
    Guest { name: "64-bit", boot: long, window: HIGH + WINDOW as u64 },
];

fn narrow_code(a: &mut CodeAssembler) -> Result<(), iced_x86::IcedError> {
    let mut again = a.create_label();
    let mut function = a.create_label();
    let mut patched = a.create_label();
    let mut handler = a.create_label();
    let mut inner = a.create_label();
    let mut skip = a.create_label();
    a.mov(eax, DIRECTORY)?;
    a.mov(cr3, eax)?;
    a.mov(eax, cr0)?;
    a.or(eax, 0x8001_0000u32 as i32)?;
    a.mov(cr0, eax)?;
    a.mov(eax, 0x2_0000)?;
    a.lidt(fword_ptr(eax))?;
    start_timer(a)?;
    a.xor(ebp, ebp)?;
    a.sti()?;
    a.set_label(&mut again)?;
    a.mov(ecx, 50)?;
    a.mov(esi, DATA)?;
    a.set_label(&mut inner)?;
    a.imul_3(ebp, ebp, 1_664_525)?;
    a.add(ebp, 1_013_904_223)?;
    a.mov(eax, ebp)?;
    a.shr(eax, 20)?;
    a.add(dword_ptr(esi + eax), ecx)?;
    a.adc(byte_ptr(esi + eax + 7), 3)?;
    a.test(ebp, 0x1_0000)?;
    a.jz(skip)?;
    a.call(function)?;
    a.set_label(&mut skip)?;
    a.dec(ecx)?;
    a.jnz(inner)?;
    // Its own code: the immediate of an instruction it will run.
    a.inc(dword_ptr(CODE as u32 + 0x1000))?;
    a.mov(edx, dword_ptr(0x2_000c))?;
    a.mov(byte_ptr(edx + 1), cl)?;
    a.mov(eax, ebp)?;
    a.mov(byte_ptr(edx + 1), al)?;
    a.jmp(patched)?;
    a.set_label(&mut patched)?;
    a.mov(al, 0x55)?;
    a.mov(byte_ptr(esi + 0x3000), al)?;
    // Its page tables: the window shows the other page.
    a.xor(dword_ptr(TABLE + (WINDOW >> 12) * 4), 0x1000)?;
    a.invlpg(dword_ptr(WINDOW))?;
    a.add(dword_ptr(WINDOW), ebp)?;
    a.mov(esi, DATA + 0x123)?;
    a.mov(edi, DATA + 0x2fff)?;
    a.mov(ecx, 0x1234)?;
    a.rep().movsb()?;
    a.mov(edx, dword_ptr(0x2_0008))?;
    a.call(edx)?;
    a.jmp(again)?;
    a.set_label(&mut function)?;
    a.push(ebp)?;
    a.rol(dword_ptr(esp), 3)?;
    a.pop(edx)?;
    a.xor(dword_ptr(DATA + 0x2000), edx)?;
    a.ret()?;
    a.set_label(&mut handler)?;
    a.pushad()?;
    a.inc(dword_ptr(DATA + 0x2ffc))?;
    a.mov(al, 0x20)?;
    a.out(0x20, al)?;
    a.popad()?;
    a.iretd()
}

/// In 32-bit code, which turns paging on itself.
fn narrow() -> Machine {
    let mut a = CodeAssembler::new(32).unwrap();
    narrow_code(&mut a).unwrap();
    let result =
        a.assemble_options(CODE, iced_x86::BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS).unwrap();
    let bytes = &result.inner.code_buffer;
    let offsets = &result.inner.new_instruction_offsets;
    let at = |wanted: iced_x86::Code| {
        CODE as u32 + offsets[a.instructions().iter().position(|i| i.code() == wanted).unwrap()]
    };
    let handler = at(iced_x86::Code::Pushad);
    let function = at(iced_x86::Code::Push_r32);
    let patched = a.instructions().iter().position(|i| i.op_count() == 2 && i.immediate8() == 0x55).unwrap();
    let patched = CODE as u32 + offsets[patched];

    let mut m = Machine::flat32(4 << 20);
    m.memory.load(PhysAddr(CODE), bytes);
    m.memory.write_u32(PhysAddr(DIRECTORY.into()), TABLE | 3);
    for page in 0..1024u32 {
        m.memory.write_u32(PhysAddr((TABLE + 4 * page).into()), page << 12 | 3);
    }
    m.memory.write_u16(PhysAddr(0x2_0000), 0x7ff);
    m.memory.write_u32(PhysAddr(0x2_0002), IDT);
    m.memory.write_u32(PhysAddr(0x2_0008), function);
    m.memory.write_u32(PhysAddr(0x2_000c), patched);
    m.memory.write_u64(PhysAddr(u64::from(IDT) + 0x20 * 8), gate(handler));
    m.memory.write_u64(PhysAddr(0x2_0108), 0x00cf_9a00_0000_ffff);
    m.memory.write_u64(PhysAddr(0x2_0110), 0x00cf_9200_0000_ffff);
    let cpu = &mut m.cpus[0];
    cpu.gdtr.base = 0x2_0100;
    cpu.gdtr.limit = 0x17;
    cpu.rip = CODE;
    cpu.regs[reg::SP] = STACK.into();
    m
}

/// Where the 64-bit guest sees memory.
const HIGH: u64 = 0xffff_ffff_8000_0000;
const POINTERS: u32 = 0x8_3000;
const MIDDLE: u32 = 0x8_4000;
const TSS: u32 = 0x8_5000;

/// The interrupt controller passes on the timer alone, which ticks every 456 cycles of its own.
fn start_timer(a: &mut CodeAssembler) -> Result<(), iced_x86::IcedError> {
    for (port, value) in [
        (0x20u32, 0x11u32),
        (0x21, 0x20),
        (0x21, 4),
        (0x21, 1),
        (0x21, 0xfe),
        (0x43, 0x34),
        (0x40, 200),
        (0x40, 1),
    ] {
        a.mov(al, value)?;
        a.out(port, al)?;
    }
    Ok(())
}

/// Where the 64-bit guest sees an address.
fn high(at: u32) -> u64 {
    HIGH + u64::from(at)
}

fn long_code(a: &mut CodeAssembler) -> Result<(), iced_x86::IcedError> {
    let mut again = a.create_label();
    let mut function = a.create_label();
    let mut patched = a.create_label();
    let mut inner = a.create_label();
    let mut skip = a.create_label();
    start_timer(a)?;
    a.xor(r13d, r13d)?;
    a.mov(r12, 6_364_136_223_846_793_005u64)?;
    a.sti()?;
    a.set_label(&mut again)?;
    a.mov(ecx, 50)?;
    a.mov(rsi, high(DATA))?;
    a.set_label(&mut inner)?;
    a.imul_2(r13, r12)?;
    a.add(r13, 1_013_904_223)?;
    a.mov(rax, r13)?;
    a.shr(rax, 52)?;
    a.add(qword_ptr(rsi + rax), rcx)?;
    a.adc(byte_ptr(rsi + rax + 7), 3)?;
    a.sub(dword_ptr(rsi + rax * 2 + 3), r13d)?;
    a.movsxd(r8, dword_ptr(rsi + rax))?;
    a.xor(qword_ptr(rax).gs(), r8)?;
    a.lock().cmpxchg(qword_ptr(rsi + rax), rdx)?;
    a.lock().inc(dword_ptr(0x2800).gs())?;
    a.bt(r13, 16)?;
    a.jnc(skip)?;
    a.call(function)?;
    a.set_label(&mut skip)?;
    a.dec(rcx)?;
    a.jnz(inner)?;
    // Its own code: the immediate of an instruction it will run.
    a.inc(dword_ptr(high(CODE as u32 + 0x1000)))?;
    a.mov(rdx, qword_ptr(high(0x2_0018)))?;
    a.mov(byte_ptr(rdx + 1), cl)?;
    a.mov(rax, r13)?;
    a.mov(byte_ptr(rdx + 1), al)?;
    a.jmp(patched)?;
    a.set_label(&mut patched)?;
    a.mov(al, 0x55)?;
    a.mov(byte_ptr(rsi + 0x3000), al)?;
    // Its page tables: the window shows the other page.
    a.xor(qword_ptr(high(TABLE + (WINDOW >> 12) * 8)), 0x1000)?;
    a.invlpg(byte_ptr(high(WINDOW)))?;
    a.add(qword_ptr(high(WINDOW)), r13)?;
    a.mov(rsi, high(DATA + 0x123))?;
    a.mov(rdi, high(DATA + 0x2fff))?;
    a.mov(ecx, 0x1234)?;
    a.rep().movsb()?;
    a.mov(rdx, qword_ptr(high(0x2_0010)))?;
    a.call(rdx)?;
    a.call(qword_ptr(high(0x2_0010)))?;
    a.jmp(again)?;
    a.set_label(&mut function)?;
    a.push(r13)?;
    a.rol(qword_ptr(rsp), 3)?;
    a.pop(rdx)?;
    a.xor(qword_ptr(high(DATA + 0x2000)), rdx)?;
    a.ret()?;
    // The handler.
    a.push(rax)?;
    a.inc(dword_ptr(high(DATA + 0x2ffc)))?;
    a.mov(al, 0x20)?;
    a.out(0x20, al)?;
    a.pop(rax)?;
    a.iretq()
}

/// In 64-bit code at high addresses, with a table of four levels and an interrupt stack.
fn long() -> Machine {
    let mut a = CodeAssembler::new(64).unwrap();
    long_code(&mut a).unwrap();
    let result = a
        .assemble_options(HIGH + CODE, iced_x86::BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS)
        .unwrap();
    let offsets = &result.inner.new_instruction_offsets;
    let at = |wanted: &dyn Fn(&iced_x86::Instruction) -> bool| {
        HIGH + CODE + u64::from(offsets[a.instructions().iter().position(wanted).unwrap()])
    };
    let pushes = |register| {
        move |i: &iced_x86::Instruction| i.code() == iced_x86::Code::Push_r64 && i.op0_register() == register
    };
    let function = at(&pushes(iced_x86::Register::R13));
    let handler = at(&pushes(iced_x86::Register::RAX));
    let patched = at(&|i| i.op_count() == 2 && i.immediate8() == 0x55);

    let mut m = Machine::flat64(4 << 20);
    m.memory.load(PhysAddr(CODE), &result.inner.code_buffer);
    let mut put = |at: u32, value: u64| m.memory.write_u64(PhysAddr(at.into()), value);
    put(DIRECTORY + 8 * 511, u64::from(POINTERS) | 3);
    put(POINTERS + 8 * 510, u64::from(MIDDLE) | 3);
    put(MIDDLE, u64::from(TABLE) | 3);
    put(MIDDLE + 8, 0x20_0083);
    for page in 0..512 {
        put(TABLE + 8 * page, u64::from(page) << 12 | 3);
    }
    put(0x2_0010, function);
    put(0x2_0018, patched);
    // On interrupt stack 1.
    put(IDT + 0x20 * 16, gate(handler as u32) | 1 << 32);
    put(IDT + 0x20 * 16 + 8, handler >> 32);
    put(TSS + 0x24, high(STACK + 0x1000));
    put(0x2_0108, 0x00af_9b00_0000_ffff);
    put(0x2_0110, 0x00cf_9300_0000_ffff);
    let cpu = &mut m.cpus[0];
    cpu.cr3 = DIRECTORY.into();
    cpu.gdtr.base = high(0x2_0100);
    cpu.gdtr.limit = 0x17;
    cpu.idtr.base = high(IDT);
    cpu.idtr.limit = 0xfff;
    cpu.tr = Segment { selector: 0x18, base: high(TSS), limit: 0x67, attributes: 0x8b };
    cpu.segments[Seg::Gs as usize].base = high(DATA);
    cpu.rip = HIGH + CODE;
    cpu.regs[reg::SP] = high(STACK);
    m
}
