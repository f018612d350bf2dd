"""The Model Context Protocol (MCP) at /mcp: five tools for language models, over streamable HTTP without sessions."""
