"""Saved programs, damaged field by field: every field of the message, by seeded chance, in ways that files are damaged or forged.
"""
from __future__ import annotations

import random
from typing import Any, List

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from paddle.base.proto import framework_pb2

_NUMBERS = (0, 1, -1, -2, 2, 7, 100, 2**31 - 1, -2**31)
_LONG_NUMBERS = (*_NUMBERS, 2**40, 2**62, -2**63, 2**63 - 1)
_TEXTS = ('', 'x', '[/]', '<a href="http://example.com">x</a>', '@EMPTY@', '@GRAD', 'a\nb',
          '\x1b[31m', 'x' * 5000)


def damage(message: framework_pb2.ProgramDesc, seed: int) -> str:
    """Changes `message` in one to three places; says how."""
    chance = random.Random(seed)
    return '; '.join(_change(message, chance) for _ in range(chance.choice((1, 1, 1, 2, 3))))


def _change(message: Message, chance: random.Random) -> str:
    """Picks the kind of thing first, so that blocks and variables are damaged as often as the many attributes."""
    kind = chance.choice(
        ('block', 'op', 'op', 'variable', 'attribute', 'attribute', 'slot', 'order', 'link'))
    block = chance.choice(message.blocks)
    if kind == 'block':
        return 'block: ' + _change_field(block, chance)
    if kind == 'order' or not block.ops:
        return _reorder(message, chance)
    if kind == 'variable' and block.vars:
        variable = chance.choice(block.vars)
        parts: List[Message] = [variable, variable.type]
        if variable.type.HasField('lod_tensor'):
            parts += [variable.type.lod_tensor, variable.type.lod_tensor.tensor] * 2
        return f'variable {variable.name[:30]!r}: ' + _change_field(chance.choice(parts), chance)
    op = chance.choice(block.ops)
    where = f'{op.type} '
    if kind == 'attribute' and op.attrs:
        attribute = chance.choice(op.attrs)
        return where + f'attribute {attribute.name}: ' + _change_attribute(attribute, chance)
    if kind == 'slot' and (op.inputs or op.outputs):
        slot = chance.choice([*op.inputs, *op.outputs])
        return where + f'slot {slot.parameter}: ' + _change_field(slot, chance)
    if kind == 'link':
        return where + _relink(op, message, chance)
    return where + _change_field(op, chance)


def _change_attribute(attribute: Message, chance: random.Random) -> str:
    if chance.random() < 0.4:
        attribute.type = chance.choice(framework_pb2.AttrType.values())
        return f'type {attribute.type}'
    return _change_field(attribute, chance)


def _relink(op: Message, message: Message, chance: random.Random) -> str:
    """Gives a block to an op, so that blocks run each other, in any order."""
    kind = chance.choice(('sub_block', 'forward', 'parent'))
    if kind == 'sub_block':
        found = [a for a in op.attrs if a.type == framework_pb2.BLOCK] or [op.attrs.add()]
        found[0].name, found[0].type = 'sub_block', framework_pb2.BLOCK
        found[0].block_idx = chance.randrange(-1, len(message.blocks) + 1)
        return f'sub_block {found[0].block_idx}'
    block = chance.choice(message.blocks)
    field = 'forward_block_idx' if kind == 'forward' else 'parent_idx'
    setattr(block, field, chance.randrange(-2, len(message.blocks) + 1))
    return f'block {field} {getattr(block, field)}'


def _reorder(message: Message, chance: random.Random) -> str:
    block = chance.choice(message.blocks)
    things = chance.choice(
        (message.blocks, block.ops, block.vars, chance.choice(block.ops or [block]).ListFields() and
         block.ops))
    if len(things) < 2:
        return 'nothing'
    one, other = chance.sample(range(len(things)), 2)
    copies = [type(things[0]).FromString(t.SerializePartialToString()) for t in things]
    how = chance.choice(('swap', 'drop', 'double', 'overwrite'))
    if how == 'swap':
        copies[one], copies[other] = copies[other], copies[one]
    elif how == 'drop':
        del copies[one]
    elif how == 'double':
        copies.insert(other, copies[one])
    else:
        copies[other] = copies[one]
    del things[:]
    things.extend(copies)
    return f'{how} {type(copies[0]).__name__} {one} {other}'


def _change_field(message: Message, chance: random.Random) -> str:
    field = chance.choice(message.DESCRIPTOR.fields)
    name = field.name
    if chance.random() < 0.15:
        message.ClearField(name)
        return f'no {name}'
    if field.label == FieldDescriptor.LABEL_REPEATED:
        return _change_list(getattr(message, name), field, chance)
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        getattr(message, name).SetInParent()
        return f'empty {name}'
    value = _value(field, chance)
    setattr(message, name, value)
    return f'{name} = {str(value)[:20]!r}'


def _change_list(items: Any, field: FieldDescriptor, chance: random.Random) -> str:
    name, is_message = field.name, field.type == FieldDescriptor.TYPE_MESSAGE
    how = chance.choice(('drop', 'double', 'change', 'change'))
    if not len(items) or how == 'double':
        if is_message:
            items.add().CopyFrom(items[0]) if len(items) else items.add()
        else:
            items.append(items[0] if len(items) else _value(field, chance))
        return f'more {name}'
    at = chance.randrange(len(items))
    if how == 'drop' or is_message:
        del items[at]
        return f'less {name}'
    items[at] = _value(field, chance)
    return f'{name}[{at}] = {str(items[at])[:20]!r}'


def _value(field: FieldDescriptor, chance: random.Random) -> Any:
    if field.type == FieldDescriptor.TYPE_ENUM:
        return chance.choice(field.enum_type.values).number
    if field.type == FieldDescriptor.TYPE_STRING:
        return chance.choice(_TEXTS)
    if field.type == FieldDescriptor.TYPE_BOOL:
        return chance.random() < 0.5
    if field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
        return chance.choice((0.0, -1.0, 1e30, float('nan'), float('inf')))
    return chance.choice(_NUMBERS if field.type == FieldDescriptor.TYPE_INT32 else _LONG_NUMBERS)
