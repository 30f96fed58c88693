"""Chat templates that use what published ones use, written for these tests."""

from __future__ import annotations

TURNS = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set first = messages[0]['content'] + '\\n\\n' -%}
    {%- set rest = messages[1:] -%}
{%- else -%}
    {%- set first = '' -%}
    {%- set rest = messages -%}
{%- endif -%}
{%- for message in rest -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Roles must alternate user/assistant/…") }}
    {%- endif -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '\\n' + (first if loop.first else '') }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] if item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endfor -%}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}
"""
"""Alternating turns, a system text in the first, trimmed contents."""

TOOLS = """{%- macro described(function) -%}
- {{ function.name }}({% for name, entry in function.parameters.properties.items() %}{{ name }}: {{ entry.type }}
    {%- if not loop.last %}, {% endif %}{% endfor %})
{%- endmacro -%}
{%- set ns = namespace(is_tool=false, last=-1) -%}
{% if tools %}
You may call:
{% for tool in tools | selectattr('type', 'equalto', 'function') %}
{{ described(tool.function) }} {{ tool | tojson(indent=2) }}
{% endfor %}
{% endif %}
{% for message in messages %}
    {% if message.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}
{% endfor %}
{% for message in messages %}
    {% if message.role == 'tool' and not ns.is_tool %}{% set ns.is_tool = true %}<results>{% endif %}
    {% if message.role == 'system' %}{% continue %}{% endif %}
<{{ message.role ~ ':' ~ loop.index }}>
    {%- set content = message.content %}
    {%- if '</think>' in content and loop.index0 < ns.last %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
{% generation %}{{ content | default('', true) }}{% endgeneration %}
    {% for call in message.tool_calls or [] %}
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
        {% if loop.index > 2 %}{% break %}{% endif %}
    {% endfor %}
{% endfor %}
{{ strftime_now('%Y') | length }} {{ ['a', 'b'] | join('-') | upper }} {{ 'x'.replace('x', 'yy') }}
{{ '%s-%d' % ('a', 3) }} {{ "{:>4}".format(7) }}
"""
"""Tools, macros, loop controls, namespaces, filters, formatting."""
