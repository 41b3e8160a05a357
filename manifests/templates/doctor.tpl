{{- /* helm test: runs topogate doctor. Its rights, which are those of the reader and those below, end with it. */ -}}
{{- define "topogate.test" -}}
name: topogate-doctor
annotations:
  helm.sh/hook: test
  helm.sh/hook-weight: {{ index . 0 | quote }}
  helm.sh/hook-delete-policy: before-hook-creation{{ index . 1 }}
{{- end }}
{{- $setup := include "topogate.test" (list "0" ",hook-succeeded") | nindent 2 }}
{{- $account := "system:serviceaccount:topogate-system:topogate-doctor" }}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{- include "topogate.test" (list "-1" ",hook-succeeded") | nindent 2 }}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - {apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}
  matchConditions:
    - {name: by-the-test, expression: request.userInfo.username == '{{ $account }}'}
  validations:
    - expression: request.?dryRun.orValue(false)
      reason: Forbidden
      message: topogate doctor may create pods as dry runs alone
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{- include "topogate.test" (list "-1" ",hook-succeeded") | nindent 2 }}
spec:
  policyName: topogate-doctor
  validationActions: [Deny]
---
apiVersion: v1
kind: ServiceAccount
metadata: {{- $setup }}
  namespace: topogate-system
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{- $setup }}
rules:
  - {apiGroups: [""], resources: [pods], verbs: [create]}
  - {apiGroups: [""], resources: [configmaps], resourceNames: [labeler], verbs: [get]}
  - {apiGroups: [apps], resources: [daemonsets], resourceNames: [labeler, allocator], verbs: [get]}
  - apiGroups: [admissionregistration.k8s.io]
    resources: [mutatingwebhookconfigurations]
    resourceNames: [topogate]
    verbs: [get]
  - apiGroups: [admissionregistration.k8s.io]
    resources: [validatingadmissionpolicies, validatingadmissionpolicybindings]
    verbs: [list]
  - {apiGroups: [falldio.com], resources: [gputasks], verbs: [list]}
  - {apiGroups: [autoscaling.x-k8s.io], resources: [provisioningrequests], verbs: [list]}
  - {apiGroups: [kueue.x-k8s.io], resources: [topologies], verbs: [list]}
  - {apiGroups: [authorization.k8s.io], resources: [subjectaccessreviews], verbs: [create]}
  {{- (include "topogate.objectsOf" (list . "components/reader/role.yaml") | fromJsonArray | first).rules | toYaml | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{- $setup }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: topogate-doctor}
subjects:
  - {kind: ServiceAccount, name: topogate-doctor, namespace: topogate-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{- $setup }}
  namespace: topogate-system
rules:
  - {apiGroups: [apps], resources: [deployments], verbs: [get, list]}
  - {apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [topogate-sweeper, topogate-tasks], verbs: [get]}
  - {apiGroups: [""], resources: [secrets], resourceNames: [topogate-webhook-tls], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{- $setup }}
  namespace: topogate-system
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: topogate-doctor}
subjects:
  - {kind: ServiceAccount, name: topogate-doctor, namespace: topogate-system}
---
apiVersion: v1
kind: Pod
metadata: {{- include "topogate.test" (list "1" "") | nindent 2 }}
  namespace: topogate-system
spec:
  serviceAccountName: topogate-doctor
  restartPolicy: Never
  {{- range $field := list "imagePullSecrets" "nodeSelector" "tolerations" }}
  {{- with get $.Values.AsMap $field }}
  {{ $field }}: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: doctor
      image: {{ .Values.images.topogate | quote }}
      command: [topogate, doctor]
      resources: {{- toYaml .Values.ui.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
