"""A device plugin that hands out exactly the cards that a pod's annotations name.

The pure part: ``values`` (pods and cards as records), ``identify`` (which pod the kubelet asks for),
``choose`` (which devices and tiles it gets), ``masks`` (what the GPU's runtime gets). Around it, thin:
``devices`` and ``vendors`` (the cards of this machine), ``pods`` and ``listing`` (the API server's and the
kubelet's word), ``resolve`` (asks both until the answer is certain), ``plugin`` and ``register`` (gRPC).
"""
