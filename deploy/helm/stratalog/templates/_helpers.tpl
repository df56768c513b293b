{{- define "stratalog.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "stratalog.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "stratalog.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "stratalog.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "stratalog.selector" -}}
app.kubernetes.io/name: {{ include "stratalog.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: broker
{{- end }}

{{- define "stratalog.consoleSelector" -}}
app.kubernetes.io/name: {{ include "stratalog.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: console
{{- end }}

{{- define "stratalog.labels" -}}
{{ include "stratalog.selector" . }}
{{ include "stratalog.sharedLabels" . }}
{{- end }}

{{- define "stratalog.consoleLabels" -}}
{{ include "stratalog.consoleSelector" . }}
{{ include "stratalog.sharedLabels" . }}
{{- end }}

{{- define "stratalog.sharedLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "stratalog.image" -}}
{{- $image := .Values.image -}}
{{- with $image.registry }}{{ . }}/{{ end }}{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "stratalog.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "stratalog.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end }}

{{- define "stratalog.headless" -}}
{{ include "stratalog.fullname" . }}-brokers
{{- end }}

{{- define "stratalog.tlsSecret" -}}
{{- .Values.tls.existingSecret | default (printf "%s-tls" (include "stratalog.fullname" .)) -}}
{{- end }}

{{/* The Secret with the console's certificate; "" without TLS. */}}
{{- define "stratalog.consoleTls" -}}
{{- if not .Values.console.allowPlaintext -}}
{{- .Values.console.tlsSecret | default (include "stratalog.tlsSecret" .) -}}
{{- end -}}
{{- end }}

{{- define "stratalog.usersSecret" -}}
{{- .Values.sasl.existingSecret | default (printf "%s-users" (include "stratalog.fullname" .)) -}}
{{- end }}

{{- define "stratalog.configmap" -}}
{{- .Values.existingConfigmap | default (include "stratalog.fullname" .) -}}
{{- end }}

{{/* Where the roots lie: a bucket, or below the pods' mount. */}}
{{- define "stratalog.roots" -}}
{{- .Values.storage.url | trimSuffix "/" | default "/var/lib/stratalog" -}}
{{- end }}

{{- define "stratalog.isOnVolumes" -}}
{{- if and (not .Values.storage.url) .Values.persistence.enabled }}true{{ end -}}
{{- end }}

{{/* The roots that have a claim of their own: metadata, and broker-<id> of each broker. */}}
{{- define "stratalog.claimedRoots" -}}
{{- if and (include "stratalog.isOnVolumes" .) (not .Values.persistence.existingClaim) -}}
metadata
{{- range $ordinal := until (int .Values.replicaCount) }} broker-{{ add $ordinal $.Values.minId }}{{ end -}}
{{- end -}}
{{- end }}

{{- define "stratalog.validate" -}}
{{- if and .Values.storage.url .Values.persistence.existingClaim }}
{{- fail "storage.url and persistence.existingClaim are given: the roots lie in the bucket or on the volume, not on both" }}
{{- end }}
{{- if and .Values.pdb.enabled (gt (int .Values.replicaCount) 1) (gt (int .Values.pdb.maxUnavailable) (div (int .Values.replicaCount) 2)) }}
{{- fail (printf "pdb.maxUnavailable %d is more than half of the %d brokers: partitions would have no replica left" (int .Values.pdb.maxUnavailable) (int .Values.replicaCount)) }}
{{- end }}
{{- if gt (int .Values.safeToRestartSeconds) (div (int .Values.terminationGracePeriodSeconds) 2) }}
{{- fail (printf "safeToRestartSeconds %d is more than half of terminationGracePeriodSeconds %d: the broker needs the rest to hand over" (int .Values.safeToRestartSeconds) (int .Values.terminationGracePeriodSeconds)) }}
{{- end }}
{{- if .Values.console.enabled }}
{{- if not (or .Values.console.allowPlaintext .Values.console.tlsSecret .Values.tls.enabled) }}
{{- fail "console.enabled is true without TLS: passwords and records can be read on their way. Give console.tlsSecret, or console.allowPlaintext" }}
{{- end }}
{{- if and .Values.sasl.enabled (eq .Values.sasl.mechanism "PLAIN") }}
{{- fail "console.enabled is true and sasl.mechanism is PLAIN: users of the console log in by their SCRAM credentials" }}
{{- end }}
{{- if not (or .Values.storage.url .Values.persistence.enabled) }}
{{- fail "console.enabled is true and the roots are in each pod's own temporary volume, which the console does not reach" }}
{{- end }}
{{- end }}
{{- range $name, $listener := .Values.listeners }}
{{- if and (hasSuffix "SSL" $listener.protocol) (not $.Values.tls.enabled) }}
{{- fail (printf "listeners.%s.protocol is %s and tls.enabled is false" $name $listener.protocol) }}
{{- end }}
{{- if and (hasPrefix "SASL_" $listener.protocol) (not $.Values.sasl.enabled) }}
{{- fail (printf "listeners.%s.protocol is %s and sasl.enabled is false" $name $listener.protocol) }}
{{- end }}
{{- end }}
{{- if and .Values.externalAccess.enabled (ne (len .Values.externalAccess.hosts) (int .Values.replicaCount)) }}
{{- fail (printf "externalAccess.hosts has %d names for %d brokers: one for each" (len .Values.externalAccess.hosts) (int .Values.replicaCount)) }}
{{- end }}
{{- if and .Values.externalAccess.enabled (eq .Values.externalAccess.type "NodePort") (ne (len .Values.externalAccess.nodePorts) (int .Values.replicaCount)) }}
{{- fail (printf "externalAccess.nodePorts has %d ports for %d brokers: one for each" (len .Values.externalAccess.nodePorts) (int .Values.replicaCount)) }}
{{- end }}
{{- end }}
